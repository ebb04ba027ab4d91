"""Unsafe settings are refused with a message that says what to change."""

import json
from pathlib import Path

import pytest
from jwt.algorithms import RSAAlgorithm

from horae.api.auth.safety import refuse_unsafe
from horae.cli.app import run
from horae.config import Settings, load_settings
from horae.core.errors import Misconfigured
from horae.runtime.launch import run_node
from horae.runtime.plan import NodePlan
from tests.api.tokens import RSA_KEY, WEAK_RSA_KEY, public_jwk

NO_FILE = Path("there-is-no-such-file.toml")
SECRET = "correct horse battery staple and more"


def refusal(*, roles: str = "api,planner,worker", local: bool = False, **settings: str) -> str:
    """Return why a node with these settings is refused; empty when it is not."""
    environ = {f"HORAE_{name.upper()}": value for name, value in settings.items()}
    try:
        refuse_unsafe(load_settings(environ=environ, file=NO_FILE), roles=roles.split(","), local=local)
    except Misconfigured as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.com", ""])
def test_beyond_loopback_there_is_authentication(host: str) -> None:
    assert "HORAE_AUTH=jwt" in refusal(host=host)
    assert "HORAE_ALLOW_SHELL" in refusal(host=host, allow_shell="1")
    assert refusal(host=host, auth="jwt", jwt_secret=SECRET) == ""
    assert refusal(host=host, roles="planner,worker") == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_on_loopback_there_need_be_none(host: str) -> None:
    assert refusal(host=host, allow_shell="1") == ""


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "set HORAE_JWT_SECRET, or set HORAE_JWKS"),
        ({"jwt_secret": "short"}, "has 5 bytes, but needs at least 32; make one with"),
        ({"jwt_secret": "é" * 15}, "has 30 bytes"),
        ({"jwt_secret": SECRET, "jwks": "https://issuer.example/keys"}, "unset the other"),
        ({"jwks": "http://issuer.example/keys"}, "must come over https"),
        ({"jwks": "ftp://issuer.example/keys"}, "must be a file or an https:// URL"),
        ({"jwks": "/no/such/file.json"}, "cannot be read: No such file"),
        ({"encryption_key": "short", "jwt_secret": SECRET}, "shorter than 16 characters; make one with"),
    ],
)
def test_tokens_are_checked_with_one_good_key(settings: dict[str, str], why: str) -> None:
    details = refusal(auth="jwt", **settings)
    assert why in details
    assert SECRET not in details


@pytest.mark.parametrize(
    "place", ["https://issuer.example/keys", "http://127.0.0.1:8080/keys", "http://localhost/keys"]
)
def test_keys_may_come_over_https_or_from_this_machine(place: str) -> None:
    assert refusal(auth="jwt", jwks=place) == ""


USELESS = {
    "text": "no json",
    "a list": "[]",
    "a number": '{"keys": 3}',
    "no keys": '{"keys": []}',
    "no key": '{"keys": ["text", {"kty": "nothing"}]}',
    "a secret": json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}),
    "for encryption": json.dumps({"keys": [{**public_jwk(RSA_KEY), "use": "enc"}]}),
    "for nothing": json.dumps({"keys": [{**public_jwk(RSA_KEY), "alg": "none"}]}),
    "as a secret": json.dumps({"keys": [{**public_jwk(RSA_KEY), "alg": "HS256"}]}),
    "weak": json.dumps({"keys": [RSAAlgorithm.to_jwk(WEAK_RSA_KEY.public_key(), as_dict=True)]}),
}


@pytest.mark.parametrize("name", USELESS)
def test_a_file_must_hold_a_public_key_that_is_good_for_something(tmp_path: Path, name: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(USELESS[name])
    assert "HORAE_JWKS" in refusal(auth="jwt", jwks=str(file))


def test_a_file_may_be_written_as_an_address_too(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [public_jwk(RSA_KEY)]}))
    assert refusal(auth="jwt", jwks=str(file)) == refusal(auth="jwt", jwks=f"file://{file}") == ""


def test_a_key_without_authentication_is_taken_for_an_oversight() -> None:
    assert "set HORAE_AUTH=jwt, or unset HORAE_JWT_SECRET" in refusal(jwt_secret=SECRET)
    assert "unset HORAE_JWKS" in refusal(jwks="https://issuer.example/keys")
    assert refusal(jwt_secret=SECRET, local=True) == ""
    assert refusal(jwt_secret=SECRET, roles="worker") == ""


def test_a_node_is_refused_before_it_opens_anything(tmp_path: Path) -> None:
    environ = {"HORAE_AUTH": "jwt", "HORAE_STORE": f"sqlite:///{tmp_path}/horae.db"}
    with pytest.raises(Misconfigured, match="needs a key"):
        run_node(load_settings(environ=environ, file=NO_FILE), NodePlan())
    assert list(tmp_path.iterdir()) == []


def test_a_server_for_trying_out_is_for_this_machine_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[tuple[Settings, NodePlan]] = []

    def note(settings: Settings, plan: NodePlan, **_: object) -> int:
        started.append((settings, plan))
        return 0

    monkeypatch.setattr("horae.runtime.launch.run_node", note)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HORAE_HOST", "0.0.0.0")
    monkeypatch.setenv("HORAE_AUTH", "jwt")
    assert run(["dev"]) == 0
    [(settings, plan)] = started
    assert (settings.host, settings.auth, plan.local) == ("127.0.0.1", "off", True)
