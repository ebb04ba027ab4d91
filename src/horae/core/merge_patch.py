"""Merge patches of JSON values (RFC 7396)."""

from collections.abc import Mapping


def merge_patch(target: object, patch: object) -> object:
    """The target after a patch: null removes a member, objects are merged, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result
