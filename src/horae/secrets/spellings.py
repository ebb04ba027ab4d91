"""What to search texts for, given a secret value: the value, the tokens inside it, and how other formats write them."""

import base64
import binascii
import html
import json
import re
from collections.abc import Iterator
from urllib.parse import SplitResult, quote, quote_plus, unquote, unquote_plus, urlsplit

SHORTEST = 4  # characters of a text that is redacted; shorter ones would redact half of every text
_LINE = 2 * SHORTEST  # characters of a line, or of a word of small letters, that is redacted by itself
_RESERVED = ":/?#[]@!$&'()*+,;=%~"  # what clients leave as it is when they clean an address
_WORD = re.compile(r"[a-z_-]*")
_PLAIN = re.compile(r"[A-Za-z0-9._~-]*", re.ASCII)
_CREDENTIALS = re.compile(r"\s*(?P<scheme>[A-Za-z][A-Za-z0-9-]*)\s+(?P<token>\S+)\s*")  # of an Authorization header
_PAIRS = re.compile(r"[^\s=&;]+=[^&;]*(?:[&;]\s*[^\s=&;]+=[^&;]*)*")  # of a form or a cookie
_PERCENT = re.compile(r"%[0-9A-F]{2}")


def spellings(value: str) -> set[str]:
    """Return every text by which a value, or a token inside it, can be recognized."""
    parts = {value, value.strip(), *_tokens(value)}
    found = {text for part in parts for text in _encodings(part)}
    found.update(line for line in value.splitlines() if len(line) >= _LINE)
    return {text for text in found if len(text) >= SHORTEST}


def _tokens(value: str) -> Iterator[str]:
    """Yield what is secret by itself inside an address, an Authorization header, a form or a cookie."""
    if "://" in value:
        try:
            yield from _tokens_of_address(urlsplit(value.strip()))
        except ValueError:  # an address with a malformed host, which no request can be sent to
            return
    elif (credentials := _CREDENTIALS.fullmatch(value)) is not None:
        yield from _tokens_of_credentials(credentials["scheme"], credentials["token"])
    elif _PAIRS.fullmatch(value):
        yield from _tokens_of_pairs(value)


def _tokens_of_address(address: SplitResult) -> Iterator[str]:
    if address.password:
        yield from (f"{address.username}:{address.password}", address.password, unquote(address.password))
    path = address.path.strip("/")
    if address.query:
        yield f"{path}?{address.query}"
        yield from (address.query, *_tokens_of_pairs(address.query))
    for text in (path, unquote(path)):
        if "/" in text:
            yield text
    segments = [address.username or "", *path.split("/"), address.fragment]
    yield from (text for segment in segments for text in (segment, unquote(segment)) if _is_token(text))


def _tokens_of_credentials(scheme: str, token: str) -> Iterator[str]:
    if not _is_token(token):
        return
    yield token
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(token, validate=True).decode()
        except (binascii.Error, ValueError):  # not what the scheme asks for; the token itself is found
            return
        yield from (decoded, decoded.partition(":")[2])


def _tokens_of_pairs(text: str) -> Iterator[str]:
    for pair in re.split("[&;]", text):
        secret = pair.partition("=")[2].strip()
        yield pair.strip()
        yield from (token for token in (secret, unquote_plus(secret)) if _is_token(token))


def _is_token(text: str) -> bool:
    """Whether a part of a value is likely to be secret by itself, and not a word such as `json` or `hooks`."""
    return len(text) >= _LINE or _WORD.fullmatch(text) is None


def _encodings(text: str) -> Iterator[str]:
    """Yield a text as it is, and as Python, JSON, HTML, addresses and base64 write it."""
    encoded = text.encode("utf-8", "replace")
    yield text
    yield base64.b64encode(encoded).decode().rstrip("=")
    yield base64.urlsafe_b64encode(encoded).decode().rstrip("=")
    if _PLAIN.fullmatch(text):
        return
    yield from (repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    yield from (html.escape(text), html.escape(text, quote=False), html.escape(text).replace("&#x27;", "&#39;"))
    for quoted in (quote(encoded, safe=""), quote(encoded), quote_plus(encoded), quote(encoded, safe=_RESERVED)):
        yield quoted
        yield _PERCENT.sub(lambda escape: escape[0].lower(), quoted)
