"""Addresses of stores, and those that are refused."""

from pathlib import Path

import pytest

from horae.adapters import make_store, sqlite_path
from horae.core.errors import Misconfigured


def test_three_slashes_are_relative_and_four_absolute() -> None:
    assert sqlite_path("sqlite:///a/b.db") == Path("a/b.db")
    assert sqlite_path("sqlite:////a/b.db") == Path("/a/b.db")


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:a.db", "sqlite:///", "", "horae.db"])
def test_an_address_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_STORE"):
        make_store(url)
