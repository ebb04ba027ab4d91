"""`horae token create`: a token alone on its line, or a sentence why not."""

import jwt
import pytest

from horae.api.http.operation import Scope
from horae.cli.app import run
from horae.cli.commands.token import DEFAULT_SCOPES, SCOPES

SECRET = "a secret that only the server knows, too"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("JWT_SECRET", "JWKS", "JWT_AUDIENCE", "JWT_OWNER_CLAIM"):
        monkeypatch.delenv(f"HORAE_{name}", raising=False)
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))


def made(capsys: pytest.CaptureFixture[str], *arguments: str, audience: str | None = None) -> dict[str, object]:
    assert run(["token", "create", *arguments]) == 0
    [token] = capsys.readouterr().out.splitlines()
    claims: dict[str, object] = jwt.decode(token, SECRET, algorithms=["HS256"], audience=audience)
    return claims


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["token", "create", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_the_scopes_are_those_of_the_server() -> None:
    assert set(SCOPES) == set(Scope)
    assert set(DEFAULT_SCOPES) == {Scope.READ, Scope.WRITE}


def test_a_token_reads_and_writes_for_an_hour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HORAE_JWT_SECRET", SECRET)
    claims = made(capsys, "--sub", "ann")
    assert (claims["sub"], claims["scope"]) == ("ann", "jobs:read jobs:write")
    assert claims["exp"] == claims["iat"] + 3600  # type: ignore[operator]


@pytest.mark.parametrize(
    "arguments", [["--scope", "admin", "--scope", "shell"], ["--scope", "admin,shell"], ["--scope", "admin shell"]]
)
def test_what_it_may_do_and_for_how_long_can_be_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setenv("HORAE_JWT_SECRET", SECRET)
    monkeypatch.setenv("HORAE_JWT_OWNER_CLAIM", "org")
    claims = made(capsys, "--sub", "ann", *arguments, "--ttl", "2d", "--audience", "horae", audience="horae")
    assert (claims["scope"], claims["org"], claims["aud"]) == ("admin shell", "ann", "horae")
    assert claims["exp"] == claims["iat"] + 2 * 86400  # type: ignore[operator]


def test_the_audience_is_the_one_of_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HORAE_JWT_SECRET", SECRET)
    monkeypatch.setenv("HORAE_JWT_AUDIENCE", "horae")
    assert made(capsys, "--sub", "ann", audience="horae")["aud"] == "horae"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--sub", ""], "--sub must be a name"),
        (["--sub", "a" * 201], "--sub must be a name"),
        (["--sub", "*"], "stands for every owner"),
        (["--sub", "ann", "--scope", "everything"], "the scopes are jobs:read, jobs:write, shell, admin"),
        (["--sub", "ann", "--scope", ""], "the scopes are"),
        (["--sub", "ann", "--ttl", "soon"], "must be a duration"),
        (["--sub", "ann", "--ttl", "0"], "at least a second"),
    ],
)
def test_what_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    monkeypatch.setenv("HORAE_JWT_SECRET", SECRET)
    assert why in refused(capsys, *arguments)


def test_without_the_secret_there_is_no_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "set HORAE_JWT_SECRET" in refused(capsys, "--sub", "ann")
    monkeypatch.setenv("HORAE_JWKS", "https://issuer.example/keys")
    assert "get a token from the issuer" in refused(capsys, "--sub", "ann")
    monkeypatch.setenv("HORAE_JWT_SECRET", "short")
    error = refused(capsys, "--sub", "ann")
    assert "needs at least 32" in error
    assert "short;" not in error


def test_a_token_can_name_its_tasks_and_its_highest_priority(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HORAE_JWT_SECRET", SECRET)
    claims = made(capsys, "--sub", "ann", "--tasks", "mail.*,demo.echo", "--tasks", "web.*", "--max-priority", "-5")
    assert (claims["tasks"], claims["max_priority"]) == (["mail.*", "demo.echo", "web.*"], -5)
    assert not {"tasks", "max_priority"} & made(capsys, "--sub", "ann").keys()
    assert "from -100 to 100" in refused(capsys, "--sub", "ann", "--max-priority", "101")


def test_a_token_can_say_limits_of_its_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HORAE_JWT_SECRET", SECRET)
    claims = made(capsys, "--sub", "ann", "--limit", "waiting=5", "--limit", "stored_bytes=0")
    assert claims["limits"] == {"waiting": 5, "stored_bytes": 0}
    for wrong in ("jobs=5", "waiting=-1", "waiting=many", "waiting=true"):
        assert "whole numbers" in refused(capsys, "--sub", "ann", "--limit", wrong)
