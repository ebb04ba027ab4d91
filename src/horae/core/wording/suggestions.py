"""Suggests the known word that somebody meant by a misspelt one, in microseconds however many words are known."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import combinations

LONGEST = 64  # characters of a word that is worth a suggestion
_SHORTEST_PART = 4  # letters of a part, such as `berlin`, that is recognized although a letter is wrong
_MEDIUM = range(6, 13)  # letters of a word in which two may be wrong
_NO_LETTERS = re.compile(r"[^a-z0-9+]+")
_SEPARATORS = re.compile(r"[^A-Za-z0-9+]+")


def did_you_mean(word: object, known: Collection[str]) -> str:
    """Return `; did you mean …?` with the closest known word, or nothing."""
    close = closest(word, known) if isinstance(word, str) else None
    return "" if close is None else f"; did you mean {close}?"


def closest(word: str, known: Collection[str]) -> str | None:
    """Return the known word that is written differently, has a wrong letter or two, or has this one as a part."""
    letters = _letters(word[: LONGEST + 1])
    if not letters or len(word) > LONGEST:
        return None
    indexes = [(_index(frozenset(known)), lost) for lost in (0, 1)] + [(_far_index(frozenset(known)), 2)]
    return next((index[key] for index, lost in indexes for key in _without(letters, lost) if key in index), None)


@lru_cache(maxsize=256)
def _index(known: frozenset[str]) -> Mapping[str, str]:
    """Return the known words by their letters, by their parts, and by what is left when one letter is missing.

    Two words with one wrong letter, or two swapped ones, are the same after each lost a letter; so a typo is found
    by looking up a few keys, instead of comparing it with every word.
    """
    words = sorted(word for word in known if len(word) <= LONGEST)
    index = {_letters(word): word for word in words}
    for word in words:
        for part in _last_parts(word):
            index.setdefault(part, word)
    beginnings = Counter(part for word in words for part in _first_parts(word))
    for word in words:
        for part in _first_parts(word):
            if beginnings[part] == 1:
                index.setdefault(part, word)
    for key, word in list(index.items()):
        if len(key) >= _SHORTEST_PART or key == _letters(word):
            for typo in _without(key, 1):
                index.setdefault(typo, word)
    return index


@lru_cache(maxsize=256)
def _far_index(known: frozenset[str]) -> Mapping[str, str]:
    """Return the known words of a medium size by what is left when two letters are missing."""
    index: dict[str, str] = {}
    for word in sorted(known):
        for typo in _without(_letters(word[: _MEDIUM[-1] * 2]), 2):
            index.setdefault(typo, word)
    return index


def _letters(word: str) -> str:
    return _NO_LETTERS.sub("", word.casefold())


def _last_parts(word: str) -> list[str]:
    parts = _SEPARATORS.split(word)
    return [_letters("".join(parts[place:])) for place in range(1, len(parts))]


def _first_parts(word: str) -> list[str]:
    parts = _SEPARATORS.split(word)
    return [_letters("".join(parts[:place])) for place in range(1, len(parts))]


def _without(letters: str, lost: int) -> Iterator[str]:
    """Yield the letters without so many of them, if enough are left to be recognized."""
    if lost == 0 or (lost == 1 and len(letters) > 2) or (lost == 2 and len(letters) in _MEDIUM):
        for places in combinations(range(len(letters)), lost):
            yield "".join(letter for place, letter in enumerate(letters) if place not in places)
