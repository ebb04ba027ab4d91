"""A schedule as code declares it."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from horae.core.drafts import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A draft with a key and a recurring schedule."""

    key: str
    draft: Draft

    @property
    def digest(self) -> str:
        """What tells this version from others; what is default does not count, so new defaults change no digest."""
        usual = Draft(task=self.draft.task)
        said = {
            name: getattr(self.draft, name)
            for name in Draft.__struct_fields__
            if name == "task" or getattr(self.draft, name) != getattr(usual, name)
        }
        return sha256(msgspec.json.encode(said, enc_hook=_plain, order="deterministic")).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no place in a draft")
