"""Tokens, the keys that verify them, and the rate limit of their owners."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.api.auth import jwks as key_sources
from horae.api.auth import tokens
from horae.api.auth.jwks import KeySet, SecretKey, jwks_at, parse_keys
from horae.api.auth.tokens import InvalidToken, TokenVerifier
from horae.api.http import rate_limit
from horae.api.http.rate_limit import RateLimit
from horae.core.errors import Unavailable
from tests.api.tokens import (
    AUDIENCE,
    EC_KEY,
    ED_KEY,
    OTHER_RSA_KEY,
    RSA_KEY,
    SECRET,
    by_key,
    by_nothing,
    by_public_key,
    by_secret,
    claims,
    document,
    public_jwk,
    tampered,
    unsigned,
)

NOW = 1_772_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Issuer:
    """Publishes keys, which change, and which sometimes cannot be fetched."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.published = document(*keys)
        self.down = False
        self.asked = 0

    async def read(self) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.down:
            raise Unavailable("nobody answers")
        return self.published


@pytest.fixture
def clock() -> Clock:
    return Clock()


def by_shared_secret(clock: Clock, **options: Any) -> TokenVerifier:
    return TokenVerifier(SecretKey(SECRET), now=clock, audience=AUDIENCE, **options)


def by_issuer(clock: Clock, issuer: Issuer, **options: Any) -> TokenVerifier:
    return TokenVerifier(KeySet(issuer.read, fresh_seconds=300, elapsed=clock), now=clock, audience=AUDIENCE, **options)


async def refused(checker: TokenVerifier, token: str) -> str:
    with pytest.raises(InvalidToken) as caught:
        await checker.verify(token)
    return str(caught.value)


# --- what a good token says


async def test_a_token_says_who_asks_and_what_they_may(clock: Clock) -> None:
    found = await by_shared_secret(clock).verify(by_secret(claims(NOW, scope="jobs:read  admin unheard:of")))
    assert (found.owner, found.subject, found.scopes) == ("ann", "ann", {"jobs:read", "admin", "unheard:of"})
    assert found.expires_at == NOW + 600


@pytest.mark.parametrize(
    ("claimed", "scopes"),
    [
        ({"scope": ["jobs:read", 3, "admin"]}, {"jobs:read", "admin"}),
        ({"scope": None, "scp": ["jobs:read"]}, {"jobs:read"}),
        ({"scope": None, "scp": "jobs:read jobs:write"}, {"jobs:read", "jobs:write"}),
        ({"scope": None}, set()),
        ({"scope": 7}, set()),
        ({"scope": ""}, set()),
    ],
)
async def test_scopes_are_text_or_a_list(clock: Clock, claimed: dict[str, Any], scopes: set[str]) -> None:
    assert (await by_shared_secret(clock).verify(by_secret(claims(NOW, **claimed)))).scopes == scopes


async def test_the_owner_may_be_told_by_another_claim(clock: Clock) -> None:
    checker = by_shared_secret(clock, owner_claim="org")
    found = await checker.verify(by_secret(claims(NOW, org="acme")))
    assert (found.owner, found.subject) == ("acme", "ann")
    assert "org" in await refused(checker, by_secret(claims(NOW)))


async def test_an_audience_is_checked_only_where_one_is_set(clock: Clock) -> None:
    anybody = TokenVerifier(SecretKey(SECRET), now=clock)
    for aud in (None, "somebody", [AUDIENCE, "somebody"]):
        assert (await anybody.verify(by_secret(claims(NOW, aud=aud)))).owner == "ann"
    checker = by_shared_secret(clock)
    assert (await checker.verify(by_secret(claims(NOW, aud=["somebody", AUDIENCE])))).owner == "ann"
    for aud in (None, "somebody", ["somebody"], [], {AUDIENCE: 1}, AUDIENCE + "x"):
        assert "another audience" in await refused(checker, by_secret(claims(NOW, aud=aud)))


# --- bad tokens


@pytest.mark.parametrize(
    "claimed",
    [
        {"exp": None},
        {"exp": NOW},
        {"exp": NOW - 1},
        {"exp": True},
        {"exp": str(NOW + 600)},
        {"exp": float("nan")},
        {"exp": [NOW + 600]},
        {"nbf": NOW + 60},
        {"iat": NOW + 60},
        {"nbf": "soon"},
        {"sub": None},
        {"sub": ""},
        {"sub": "  "},
        {"sub": 7},
        {"sub": "a" * 201},
        {"sub": "a\0b"},
        {"sub": "a\ud800"},
        {"sub": "*"},
    ],
    ids=str,
)
async def test_a_token_with_wrong_claims_is_refused(clock: Clock, claimed: dict[str, Any]) -> None:
    await refused(by_shared_secret(clock), _signed_anyhow(claims(NOW, **claimed)))


def _signed_anyhow(claimed: dict[str, Any]) -> str:
    """Sign without PyJWT, which refuses to sign some tokens that an attacker could."""
    return jwt.api_jws.encode(json.dumps(claimed).encode(), SECRET, algorithm="HS256")


async def test_clocks_may_differ_a_little_but_an_end_is_an_end(clock: Clock) -> None:
    checker = by_shared_secret(clock)
    token = by_secret(claims(NOW, nbf=NOW + 20, iat=NOW + 20, exp=NOW + 100))
    assert (await checker.verify(token)).owner == "ann"
    clock.now = NOW + 99.9
    assert (await checker.verify(token)).owner == "ann"
    clock.now = NOW + 100
    assert "expired" in await refused(checker, token)


NOT_BY_SECRET = {
    "another secret": by_secret(claims(NOW), "another secret that nobody else knows"),
    "tampered": tampered(by_secret(claims(NOW))),
    "another algorithm": jwt.encode(claims(NOW), SECRET, algorithm="HS512"),
    "a key": by_key(claims(NOW)),
    **{f"alg {alg!r}": unsigned(claims(NOW), alg) for alg in ("none", "None", "NONE", "nOnE", "", "HS256")},
    "nothing": "",
    "a dot": ".",
    "dots": "..",
    "letters": "a.b.c",
    "accents": "é.é.é",
    "two parts": by_secret(claims(NOW)).rsplit(".", 1)[0],
    "four parts": by_secret(claims(NOW)) + ".x",
    "long": "x" * 20_000,
    "deep": unsigned({"a": 1})[:-1] + "[" * 9_000,
}


@pytest.mark.parametrize("name", NOT_BY_SECRET)
async def test_what_the_secret_did_not_sign_is_refused(clock: Clock, name: str) -> None:
    assert await refused(by_shared_secret(clock), NOT_BY_SECRET[name]) == "the token is not valid"


NOT_BY_KEY = {
    "a secret": by_secret(claims(NOW)),
    "the public key": by_public_key(claims(NOW)),
    "the public key, without its name": by_public_key(claims(NOW), kid=None),
    "another key": by_key(claims(NOW), OTHER_RSA_KEY),
    "a key of another name": by_key(claims(NOW), RSA_KEY, kid="ec"),
    "RS512": by_key(claims(NOW), RSA_KEY, algorithm="RS512"),
    "PS256": by_key(claims(NOW), RSA_KEY, algorithm="PS256"),
    "a key of another kind": by_key(claims(NOW), EC_KEY, kid="main", algorithm="ES256"),
    "an unknown key": by_key(claims(NOW), ED_KEY, kid="unheard-of", algorithm="EdDSA"),
    "tampered": tampered(by_key(claims(NOW))),
    **{f"alg {alg!r}": unsigned(claims(NOW), alg) for alg in ("none", "RS256", "HS256")},
}


@pytest.mark.parametrize("name", NOT_BY_KEY)
async def test_what_the_key_did_not_sign_is_refused(clock: Clock, name: str) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"), public_jwk(EC_KEY, "ec"))
    assert await refused(by_issuer(clock, issuer), NOT_BY_KEY[name]) == "the token is not valid"


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_whatever_comes_is_refused_and_no_more(text: str) -> None:
    async def attempt() -> None:
        await refused(by_shared_secret(Clock()), text)

    asyncio.run(attempt())


# --- headers that lead elsewhere

ATTACKER = public_jwk(OTHER_RSA_KEY, "theirs")
LEADING = ("jwk", "jku", "x5u", "x5c", "x5t", "kid")
KEY_NAMES = [
    *("../../../../../../dev/null", "/dev/null", "file:///dev/null", "main\0", "Main", "main ", ""),
    *(
        "' UNION SELECT 'theirs' --",
        "main' OR '1'='1",
        "main; DROP TABLE jobs",
        "%00",
        "${jndi:ldap://x}",
        "*",
        "k" * 4000,
    ),
]


def leading(header: str, url: str) -> dict[str, Any]:
    """Headers that contain a key of the attacker, or its URL."""
    values: dict[str, Any] = {
        "jwk": ATTACKER,
        "jku": f"{url}/keys",
        "x5u": f"{url}/certificate",
        "x5c": [base64.b64encode(b"a certificate of the attacker's").decode()],
        "x5t": "dGhlaXJz",
        "kid": f"{url}/keys",
    }
    return {"kid": "main", header: values[header]}


@pytest.mark.parametrize("header", LEADING)
async def test_a_header_that_leads_to_another_key_is_not_followed(
    clock: Clock, published: dict[str, Any], header: str
) -> None:
    """The URL in the header exists and serves the key that signed the token."""
    published["body"] = document(ATTACKER)
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    checker = by_issuer(clock, issuer)
    forged = jwt.encode(claims(NOW), OTHER_RSA_KEY, "RS256", headers=leading(header, published["url"]))
    assert await refused(checker, forged) == "the token is not valid"
    assert published["asked"] == 0
    assert issuer.asked <= 2  # only the configured URL is fetched, once more for an unknown key id


@pytest.mark.parametrize("header", [name for name in LEADING if name != "kid"])
async def test_a_good_token_is_judged_by_its_signature_wherever_its_headers_lead(
    clock: Clock, published: dict[str, Any], header: str
) -> None:
    signed = jwt.encode(claims(NOW), RSA_KEY, "RS256", headers=leading(header, published["url"]))
    assert (await by_issuer(clock, Issuer(public_jwk(RSA_KEY, "main"))).verify(signed)).owner == "ann"
    assert published["asked"] == 0


@pytest.mark.parametrize("kid", KEY_NAMES)
async def test_the_name_of_a_key_is_looked_up_exactly_and_nowhere_else(clock: Clock, kid: str) -> None:
    """Neither the right key under a foreign id nor an empty key under the name of a file is accepted."""
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    for token in (
        by_key(claims(NOW), kid=kid),
        by_key(claims(NOW), OTHER_RSA_KEY, kid=kid),
        by_nothing(claims(NOW), kid),
    ):
        assert await refused(by_issuer(clock, issuer), token) == "the token is not valid"
    assert await refused(by_shared_secret(clock), by_nothing(claims(NOW), kid)) == "the token is not valid"


@pytest.mark.parametrize("kid", [7, None, ["main"], {"main": 1}, True])
async def test_the_name_of_a_key_is_a_text(clock: Clock, kid: object) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"), public_jwk(EC_KEY))
    assert await refused(by_issuer(clock, issuer), by_nothing(claims(NOW), kid)) == "the token is not valid"


# --- keys that come and go


@pytest.mark.parametrize(
    ("key", "algorithm"), [(RSA_KEY, "RS256"), (EC_KEY, "ES256"), (ED_KEY, "EdDSA")], ids=["rsa", "ec", "ed25519"]
)
@pytest.mark.parametrize("kid", ["main", None])
async def test_public_keys_of_every_kind_are_used(clock: Clock, key: Any, algorithm: str, kid: str | None) -> None:
    checker = by_issuer(clock, Issuer(public_jwk(OTHER_RSA_KEY, "other"), public_jwk(key, "main")))
    assert (await checker.verify(by_key(claims(NOW), key, kid=kid, algorithm=algorithm))).owner == "ann"


async def test_keys_are_asked_for_once_and_again_when_they_are_old(clock: Clock) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    checker = by_issuer(clock, issuer)
    for number in range(5):
        await checker.verify(by_key(claims(NOW, jti=str(number))))
    assert issuer.asked == 1
    clock.now += 301
    await asyncio.gather(*(checker.verify(by_key(claims(NOW, jti=f"b{number}"))) for number in range(5)))
    await asyncio.sleep(0.01)
    assert issuer.asked == 2


async def test_many_requests_at_once_ask_for_the_keys_once(clock: Clock) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    checker = by_issuer(clock, issuer)
    await asyncio.gather(*(checker.verify(by_key(claims(NOW, jti=str(number)))) for number in range(20)))
    assert issuer.asked == 1


async def test_a_new_key_is_found_at_once_but_not_asked_for_all_the_time(clock: Clock) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "old"))
    checker = by_issuer(clock, issuer)
    await checker.verify(by_key(claims(NOW), RSA_KEY, kid="old"))
    issuer.published = document(public_jwk(RSA_KEY, "old"), public_jwk(OTHER_RSA_KEY, "new"))
    clock.now += 11
    assert (await checker.verify(by_key(claims(NOW), OTHER_RSA_KEY, kid="new"))).owner == "ann"
    assert issuer.asked == 2
    for number in range(10):
        await refused(checker, by_key(claims(NOW), OTHER_RSA_KEY, kid=f"made up {number}"))
    assert issuer.asked == 2
    clock.now += 11
    await refused(checker, by_key(claims(NOW), OTHER_RSA_KEY, kid="made up"))
    assert issuer.asked == 3


async def test_a_key_that_is_withdrawn_is_good_for_nothing_any_more(clock: Clock) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    checker = by_issuer(clock, issuer)
    token = by_key(claims(NOW))
    await checker.verify(token)
    issuer.published = document(public_jwk(OTHER_RSA_KEY, "other"))
    clock.now += 301
    await checker.verify(token)  # the old keys are used until the new ones are fetched
    await asyncio.sleep(0.01)
    await refused(checker, token)


async def test_old_keys_are_kept_while_nobody_answers(clock: Clock) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    checker = by_issuer(clock, issuer)
    await checker.verify(by_key(claims(NOW)))
    issuer.down = True
    for _ in range(3):
        clock.now += 301
        assert (await checker.verify(by_key(claims(clock.now)))).owner == "ann"
        await asyncio.sleep(0.01)
    issuer.published, issuer.down = b"not a document", False
    clock.now += 301
    assert (await checker.verify(by_key(claims(clock.now)))).owner == "ann"


async def test_without_any_keys_nobody_is_told_that_their_token_is_wrong(clock: Clock) -> None:
    issuer = Issuer(public_jwk(RSA_KEY, "main"))
    issuer.down = True
    checker = by_issuer(clock, issuer)
    for _ in range(5):
        with pytest.raises(Unavailable):
            await checker.verify(by_key(claims(NOW)))
    assert issuer.asked == 1
    issuer.down = False
    clock.now += 2
    assert (await checker.verify(by_key(claims(NOW)))).owner == "ann"


def test_private_parts_of_a_published_key_are_not_taken_over() -> None:
    from jwt.algorithms import RSAAlgorithm

    careless = RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True)
    careless.pop("key_ops")
    [key] = parse_keys(document(careless))
    assert not hasattr(key.key, "private_numbers")


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sources, "FILE_FRESH_SECONDS", 0.0)
    file = tmp_path / "keys.json"
    file.write_bytes(document(public_jwk(RSA_KEY, "old")))
    checker = TokenVerifier(jwks_at(str(file)), now=Clock())
    assert (await checker.verify(by_key(claims(NOW), RSA_KEY, kid="old"))).owner == "ann"
    file.write_bytes(document(public_jwk(OTHER_RSA_KEY, "new")))
    assert (await checker.verify(by_key(claims(NOW), OTHER_RSA_KEY, kid="new"))).owner == "ann"
    await refused(checker, by_key(claims(NOW, jti="2"), RSA_KEY, kid="old"))


@pytest.fixture
async def published() -> AsyncIterator[dict[str, Any]]:
    """An issuer over HTTP, whose responses the test can change."""
    state: dict[str, Any] = {"status": 200, "body": document(public_jwk(RSA_KEY, "main")), "asked": 0}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        state["asked"] += 1
        head = f"HTTP/1.1 {state['status']} S\r\nLocation: /\r\nContent-Length: {len(state['body'])}\r\n\r\n"
        writer.write(head.encode() + state["body"])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    state["url"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    yield state
    server.close()
    await server.wait_closed()


async def test_keys_are_fetched_from_their_address(published: dict[str, Any]) -> None:
    checker = TokenVerifier(jwks_at(published["url"]), now=Clock())
    assert (await checker.verify(by_key(claims(NOW)))).owner == "ann"
    assert published["asked"] == 1


@pytest.mark.parametrize(
    "answer",
    [{"status": 500}, {"status": 302}, {"body": b"x" * 1_100_000}, {"body": b"<html>"}, {"status": 204}],
    ids=str,
)
async def test_an_address_that_answers_no_keys_is_like_none(published: dict[str, Any], answer: dict[str, Any]) -> None:
    published.update(answer)
    with pytest.raises(Unavailable):
        await TokenVerifier(jwks_at(published["url"]), now=Clock()).verify(by_key(claims(NOW)))
    assert published["asked"] == 1  # no redirect is followed


async def test_an_address_where_nobody_answers_is_unavailable(unused_tcp_port: int) -> None:
    with pytest.raises(Unavailable):
        await TokenVerifier(jwks_at(f"http://127.0.0.1:{unused_tcp_port}/"), now=Clock()).verify(by_key(claims(NOW)))


# --- what it costs


async def test_a_token_is_verified_once_and_the_memory_is_bounded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_CACHED", 3)
    decoded: list[str] = []
    decode = jwt.decode

    def counted(token: str, *args: Any, **keywords: Any) -> Any:
        decoded.append(token)
        return decode(token, *args, **keywords)

    monkeypatch.setattr(jwt, "decode", counted)
    checker = by_shared_secret(clock)
    several = [by_secret(claims(NOW, jti=str(number))) for number in range(5)]
    for token in several:
        for _ in range(3):
            await checker.verify(token)
    assert decoded == several
    await checker.verify(several[0])  # dropped from the cache meanwhile
    assert decoded == [*several, several[0]]
    assert len(checker._verified) == 3


# --- rates


def test_a_burst_of_two_seconds_is_let_through_and_then_the_rate() -> None:
    clock = Clock()
    limit = RateLimit(5, elapsed=clock)
    assert [limit.wait("ann") for _ in range(12)] == [0] * 10 + [1, 1]
    assert limit.wait("ben") == 0
    clock.now += 1
    assert [limit.wait("ann") for _ in range(6)] == [0] * 5 + [1]
    clock.now += 60
    assert [limit.wait("ann") for _ in range(11)] == [0] * 10 + [1]


def test_a_slow_rate_tells_how_long_to_wait() -> None:
    clock = Clock()
    limit = RateLimit(0.1, elapsed=clock)
    assert [limit.wait("ann"), limit.wait("ann")] == [0, 10]
    clock.now += 4
    assert limit.wait("ann") == 6
    clock.now += 6
    assert limit.wait("ann") == 0


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MAX_BUCKETS", 3)
    clock = Clock()
    limit = RateLimit(1, elapsed=clock)
    for number in range(10):
        limit.wait(f"owner {number}")
    assert len(limit._full_at) == 3
    clock.now += 10
    assert limit.wait("another") == 0
    assert len(limit._full_at) == 1
