"""Estimates how many runs a worker can start within a time, by the mean duration of recent attempts."""

MOST_HELD = 20_000  # runs that one worker keeps in memory until their instant
ASSUMED_SECONDS = 0.05  # duration of an attempt before any was measured
SHORTEST_SECONDS = 0.0001
WEIGHT = 0.05  # of the last attempt in the mean


class Capacity:
    """The mean duration of recent attempts, and what follows from it."""

    def __init__(self) -> None:
        self.mean_seconds = ASSUMED_SECONDS

    def learn(self, seconds: float) -> None:
        """Take the duration of an attempt into the mean."""
        lasted = seconds if seconds > SHORTEST_SECONDS else SHORTEST_SECONDS
        self.mean_seconds += WEIGHT * (lasted - self.mean_seconds)

    def startable(self, *, free: int, young: int, within: float) -> int:
        """Return how many runs can be started within some seconds.

        A free slot serves at least one run. The slot of a young attempt serves those that follow it; attempts that
        have been running for longer are not expected to end.
        """
        turns = within / self.mean_seconds
        return min(int(free * max(turns, 1.0) + young * max(turns - 1.0, 0.0)), MOST_HELD)
