"""Where a job sends its parameters to: the scheme, host and port of the address that `http.request` is given."""

import msgspec

HTTP_REQUEST = "http.request"


class _Address(msgspec.Struct):
    url: str = ""


_DECODER = msgspec.json.Decoder(_Address)


def origin_of(task: str, params: str) -> str | None:
    """Return an origin such as `https://example.com:443`; None for a task without one."""
    if task != HTTP_REQUEST:
        return None
    import httpx2  # late, because `import horae` must be quick; the parser that sends the request is the one to trust

    try:
        url = httpx2.URL(_DECODER.decode(params).url)
    except (httpx2.InvalidURL, msgspec.MsgspecError):
        return None  # no request can be sent to it
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return f"{url.scheme}://{url.host.rstrip('.')}:{port}"
