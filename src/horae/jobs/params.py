"""Stores parameters: small ones with the job, large ones as a blob."""

from horae.core.drafts import MAX_INLINE_PARAMS, MAX_PARAMS
from horae.core.errors import InternalError, TooLarge
from horae.core.model import Spec
from horae.ports.blobs import Blobs


class Parameters:
    """Stores large parameters as blobs, which keeps the rows small that workers claim."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def keep(self, params: str, name: str) -> tuple[str, str | None]:
        """Return the `params` and `params_blob` of a spec. A blob is durable before anything refers to it.

        `name` must be new for every version, because current runs still read the old one.
        """
        if len(params) * 4 <= MAX_INLINE_PARAMS:  # a character has at most four bytes
            return params, None
        data = params.encode()
        if len(data) <= MAX_INLINE_PARAMS:
            return params, None
        if len(data) > MAX_PARAMS:
            raise TooLarge(f"the parameters have {len(data)} bytes; {MAX_PARAMS} are allowed")
        key = f"params/{name}"
        await self._blobs.put([(key, data)])
        return "{}", key

    async def of(self, spec: Spec) -> str:
        """Return the parameters as JSON text, from the spec or its blob."""
        if spec.params_blob is None:
            return spec.params
        data = await self._blobs.get(spec.params_blob)
        if data is None:
            raise InternalError(f"the parameters {spec.params_blob} are gone")
        return data.decode()
