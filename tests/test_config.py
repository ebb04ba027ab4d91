"""Settings: where values come from, and which cannot work."""

from datetime import timedelta
from pathlib import Path

import pytest

from horae.config import load_settings
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
        ({"HORAE_DEAD_AFTER_SECONDS": "4"}, "three heartbeats"),
        ({"HORAE_HORIZON_SECONDS": "10"}, "longer than HORAE_DEAD_AFTER_SECONDS"),
        ({"HORAE_LEAD_SECONDS": "45"}, "shorter than HORAE_HORIZON_SECONDS"),
        ({"HORAE_QUEUE": "redis://localhost"}, "only the queue `store`"),
        ({"HORAE_AUTH": "jwt"}, "only `off`"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(environ: dict[str, str], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        load_settings(environ=environ, file=NO_FILE)


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
