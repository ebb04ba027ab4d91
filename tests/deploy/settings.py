"""What files for a deployment say about Horae: commands that there are, and settings that can be read."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from horae.cli.app import build
from horae.config import Settings, load_settings
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "horae"
READ_ELSEWHERE = {"HORAE_LOG"}  # by the logs, before the settings
KNOWN = {f"HORAE_{setting.name.upper()}" for setting in fields(Settings) if setting.name != "sources"}


def check_command(words: Sequence[str]) -> None:
    """Raise unless `horae WORDS` is a command with these options."""
    build().parse_args(list(words), exit_on_error=False, print_error=False)


def check_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings of an environment; raises for a value that cannot be read or a name that nobody reads."""
    unknown = {name for name in environ if name.startswith("HORAE_")} - KNOWN - READ_ELSEWHERE
    assert not unknown
    return load_settings(environ=dict(environ), file=Path("there-is-no-such-file.toml"))
