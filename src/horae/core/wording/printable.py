"""Makes text that others wrote safe to show: no character of it controls a terminal or reorders what is read."""

import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, but neither tab nor newline; DEL; C1, which some terminals obey like ESC
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    "\u2028\u2029\ufeff\ufff9-\ufffb\ud800-\udfff]"  # line separators, annotations, lone surrogates
)


def printable(text: str) -> str:
    r"""Return the text with control characters as visible escapes such as `\x1b`; newlines and tabs stay."""
    return _CONTROLS.sub(_escape, text)


def printable_json(text: str) -> str:
    r"""Return JSON text with control characters inside of its strings as escapes such as `\u009b`: the same value."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
