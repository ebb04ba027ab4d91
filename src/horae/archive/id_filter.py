"""Which ids a part may have: a Bloom filter, so that a look-up reads hardly any part in vain."""

import hashlib
from collections.abc import Collection, Iterator

BITS_PER_ID = 12  # with as many probes as suit that: one false answer in 300
PROBES = 8


def make_filter(ids: Collection[str]) -> bytes:
    """Return a filter of these ids."""
    bits = bytearray(max(1, -(-len(ids) * BITS_PER_ID // 8)))
    for ident in ids:
        for place in _places(ident, 8 * len(bits)):
            bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def may_have(bits: bytes, ident: str) -> bool:
    """Whether an id may be among those of a filter; False is certain."""
    return all(bits[place >> 3] & 1 << (place & 7) for place in _places(ident, 8 * len(bits)))


def _places(ident: str, size: int) -> Iterator[int]:
    digest = hashlib.blake2b(ident.encode(), digest_size=16).digest()
    first, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
    return ((first + probe * step) % size for probe in range(PROBES))
