"""The store of a Django project, as its settings say."""

from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured

from horae.django import options


@pytest.mark.parametrize(
    ("database", "address"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "USER": "ann", "HOST": "db", "PORT": 5433}, "postgresql://ann@/shop?host=db&port=5433"),
        (
            {"NAME": "a/b", "USER": "ann@x", "PASSWORD": "p:w/d?", "HOST": "/run/postgresql", "PORT": ""},
            "postgresql://ann%40x:p%3Aw%2Fd%3F@/a%2Fb?host=%2Frun%2Fpostgresql",
        ),
        (
            {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True, "application_name": "web"}},
            "postgresql:///shop?host=db&sslmode=require",
        ),
    ],
)
def test_the_store_is_the_database_of_the_project(database: dict[str, object], address: str) -> None:
    assert options.postgres_address(database) == address


def test_an_unknown_entry_of_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "settings", SimpleNamespace(HORAE={"STROE": "sqlite:///x.db"}))
    with pytest.raises(ImproperlyConfigured, match="HORAE has STROE, but knows only STORE, DATABASE, OWNER, NAME"):
        options.option("STORE")
