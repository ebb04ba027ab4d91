"""When a request is sent again: full jitter between tries, and a budget that many failures use up."""

import random
from collections.abc import Callable

from horae.core.values import Value


class RetryRule(Value, frozen=True, kw_only=True):
    """How often and how soon a request is sent again."""

    attempts: int = 5  # the first among them
    first_delay: float = 0.025  # seconds at most before the second try; doubled for each further one
    longest_delay: float = 1.0
    budget: float = 100.0  # retries at once, when everything fails
    earned: float = 0.1  # retries that a success gives back: at most a tenth more load in the long run


class RetryBudget:
    """Bounds the retries of one client, so that they do not multiply the load of a service that is in trouble."""

    def __init__(self, rule: RetryRule | None = None, *, random_factor: Callable[[], float] = random.random) -> None:
        self.rule = rule or RetryRule()
        self._left = self.rule.budget
        self._random = random_factor

    def succeeded(self) -> None:
        """Earn a part of a retry."""
        self._left = min(self._left + self.rule.earned, self.rule.budget)

    def delay(self, attempt: int) -> float | None:
        """Return the seconds to wait before the try after this one (the first is 1); None when there is none left."""
        if attempt >= self.rule.attempts or self._left < 1:
            return None
        self._left -= 1
        return self.pause(attempt)

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after a number of tries, whatever is left: for items of a partial batch."""
        longest = min(self.rule.first_delay * float(2 ** (attempt - 1)), self.rule.longest_delay)
        return longest * self._random()
