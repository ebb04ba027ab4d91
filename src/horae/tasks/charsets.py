"""The codecs for the charsets of answers."""

import re
from encodings.aliases import aliases
from typing import Final

DEFAULT: Final = "utf-8"
_MORE = ("cp720", "cp874", "cp1006", "koi8_t", "koi8_u", "utf_8_sig")  # Python knows no other name for these
_NO_CHARSETS = {"base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "rot_13", "uu_codec", "zlib_codec"}
_NO_CHARSETS |= {"mbcs", "oem"}  # differ from machine to machine
_CODECS = {
    name: codec
    for name, codec in [*aliases.items(), *((name, name) for name in {*aliases.values(), *_MORE})]
    if codec not in _NO_CHARSETS
}
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def codec_of(charset: str | None) -> str:
    """Return the codec for a charset; UTF-8 for what is none.

    Names are not looked up in Python: it remembers every name that it was ever asked for, and has codecs that are not
    charsets, some of them extremely slow.
    """
    return _CODECS.get(_SEPARATORS.sub("_", (charset or DEFAULT).lower()), DEFAULT)
