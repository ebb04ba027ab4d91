"""Settings: where values come from, and which cannot work."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from horae.config import load_settings, shown_settings, without_password
from horae.core.errors import Misconfigured

NO_FILE = Path("there-is-no-such-file.toml")


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = load_settings(environ={}, file=NO_FILE)
    assert (settings.store, settings.queue, settings.blobs) == ("sqlite:///.horae/horae.db", "store", "store")
    assert (settings.host, settings.port, settings.auth, settings.allow_shell) == ("127.0.0.1", 8765, "off", False)
    assert settings.retention == timedelta(days=30)
    assert [
        settings.heartbeat_seconds.total_seconds(),
        settings.dead_after_seconds.total_seconds(),
        settings.horizon_seconds.total_seconds(),
        settings.lead_seconds.total_seconds(),
        settings.drain_seconds.total_seconds(),
    ] == [3, 15, 30, 1, 30]


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "horae.toml"
    file.write_text('store = "sqlite:///file.db"\nport = 1111\nHORAE_BLOBS = "file:///blobs"\n')
    environ = {"HORAE_PORT": "2222", "HORAE_STORE": "sqlite:///environ.db"}
    settings = load_settings({"store": "sqlite:///flag.db", "port": None}, environ=environ, file=file)
    assert (settings.store, settings.port, settings.blobs) == ("sqlite:///flag.db", 2222, "file:///blobs")
    assert settings.sources["store"] == "flag --store"
    assert settings.sources["port"] == "environment HORAE_PORT"
    assert settings.sources["blobs"] == str(file)


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"HORAE_PORT": "many"}, "HORAE_PORT"),
        ({"HORAE_ALLOW_SHELL": "perhaps"}, "must be 0 or 1"),
        ({"HORAE_RETENTION": "a month"}, "must be a duration"),
        ({"HORAE_LEAD_SECONDS": "0"}, "above 0"),
        ({"HORAE_DEAD_AFTER_SECONDS": "4"}, "three times HORAE_HEARTBEAT_SECONDS"),
        ({"HORAE_HORIZON_SECONDS": "10"}, "longer than HORAE_DEAD_AFTER_SECONDS"),
        ({"HORAE_HORIZON_SECONDS": "4000"}, "an hour at most"),
        ({"HORAE_LEAD_SECONDS": "45"}, "shorter than HORAE_HORIZON_SECONDS"),
        ({"HORAE_QUEUE": "rabbitmq://localhost"}, "must be `store`, redis://host:6379/0 or sqs://REGION/PREFIX"),
        ({"HORAE_EVENTS": "kafka://localhost:9092/events"}, "HORAE_EVENTS is not available in this version"),
        ({"HORAE_AUTH": "basic"}, "must be off .* or jwt"),
        ({"HORAE_JWT_OWNER_CLAIM": " "}, "name of a claim"),
        ({"HORAE_RATE_LIMIT": "-1"}, "requests per second"),
        ({"HORAE_MAX_WAITING": "-1"}, "whole number"),
        ({"HORAE_MAX_WAITING": "1_"}, "whole number"),
        ({"HORAE_MAX_STORED_BYTES": "5 gib"}, "whole number"),
        ({"HORAE_RATE_LIMIT": "nan"}, "requests per second"),
        ({"HORAE_PORT": "70000"}, "65535"),
        ({"HORAE_HTTP_ALLOW": "intern.example,10.0.0.0/33"}, "'10.0.0.0/33' is neither a host nor a network"),
        ({"HORAE_HTTP_ALLOW": "http://intern.example"}, "neither a host nor a network"),
        ({"HORAE_HTTP_ALLOW": "10.0.0.300"}, "neither a host nor a network"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(environ: dict[str, str], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        load_settings(environ=environ, file=NO_FILE)


def test_authentication_is_read_from_the_environment() -> None:
    environ = {
        "HORAE_AUTH": "jwt",
        "HORAE_JWT_SECRET": "s" * 40,
        "HORAE_JWT_AUDIENCE": "horae",
        "HORAE_JWT_OWNER_CLAIM": "org",
        "HORAE_RATE_LIMIT": "2.5",
        "HORAE_HTTP_ALLOW": "intern.example, 10.0.0.0/8,::1",
    }
    settings = load_settings(environ=environ, file=NO_FILE)
    assert (settings.auth, settings.jwt_secret, settings.jwt_audience) == ("jwt", "s" * 40, "horae")
    assert (settings.jwt_owner_claim, settings.rate_limit) == ("org", 2.5)
    assert settings.http_allow == ("intern.example", "10.0.0.0/8", "::1")


def test_secrets_are_shown_to_nobody() -> None:
    environ = {
        "HORAE_JWT_SECRET": "very-secret-indeed",
        "HORAE_ENCRYPTION_KEY": "also-very-secret",
        "HORAE_STORE": "postgresql://ann:hidden-word@host/db?sslmode=require&password=hidden-too",
        "HORAE_JWKS": "https://ann:hidden-word@issuer.example/keys",
    }
    settings = load_settings(environ=environ, file=NO_FILE)
    shown = {line.variable: line for line in shown_settings(settings)}
    assert (shown["HORAE_JWT_SECRET"].value, shown["HORAE_ENCRYPTION_KEY"].value) == ("***", "***")
    assert shown["HORAE_STORE"].value == "postgresql://ann:***@host/db?sslmode=require&password=***"
    assert shown["HORAE_JWKS"].value == "https://ann:***@issuer.example/keys"
    assert shown["HORAE_STORE"].source == "environment HORAE_STORE"
    assert (shown["HORAE_RETENTION"].value, shown["HORAE_RETENTION"].source) == ("30d", "default")
    for text in (repr(settings), str(list(shown.values()))):
        assert "secret-indeed" not in text
        assert "also-very" not in text


def test_a_setting_that_is_not_given_is_shown_as_empty() -> None:
    shown = {line.variable: line.value for line in shown_settings(load_settings(environ={}, file=NO_FILE))}
    assert (shown["HORAE_JWT_SECRET"], shown["HORAE_ALLOW_SHELL"], shown["HORAE_RATE_LIMIT"]) == ("", "0", "0")


def test_what_is_shown_can_be_written_as_it_is() -> None:
    settings = load_settings(environ={"HORAE_RETENTION": "36h", "HORAE_RATE_LIMIT": "0.5"}, file=NO_FILE)
    environ = {line.variable: line.value for line in shown_settings(settings)}
    again = load_settings(environ=environ, file=NO_FILE)
    assert replace(again, sources={}) == replace(settings, sources={})


def test_an_unknown_key_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "horae.toml"
    file.write_text("prot = 80\n")
    with pytest.raises(Misconfigured, match="no setting 'prot'"):
        load_settings(environ={}, file=file)


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "horae.toml"
    file.write_text("port: 80\n")
    with pytest.raises(Misconfigured, match="not valid TOML"):
        load_settings(environ={}, file=file)


@pytest.mark.parametrize(
    ("text", "expected"), [("30d", 2592000), ("12h", 43200), ("90s", 90), ("1.5m", 90), ("45", 45)]
)
def test_durations_are_read_with_their_units(text: str, expected: int) -> None:
    settings = load_settings(environ={"HORAE_RETENTION": text}, file=NO_FILE)
    assert settings.retention.total_seconds() == expected


def test_a_password_is_not_shown() -> None:
    assert without_password("postgresql://ann:secret@host/db") == "postgresql://ann:***@host/db"
    assert without_password("sqlite:///a.db") == "sqlite:///a.db"
    sentinel = without_password("redis+sentinel://:data@host/name?sentinel_password=own&prefix=a")
    assert sentinel == "redis+sentinel://:***@host/name?sentinel_password=***&prefix=a"
