"""Secrets: sealed at rest, given to the task alone, and redacted in its logs and results."""

import base64
import json
import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae import Fatal, Horae, Run
from horae.core.decisions.results import Failure
from horae.core.drafts import UNCHANGED, SecretsPatch
from horae.core.errors import Invalid, Misconfigured, TooLarge
from horae.engine.execution import attempt as attempt_module
from horae.engine.execution.outcome import Success
from horae.secrets.redaction import Redactor
from horae.secrets.sealer import Opened, Sealer, SecretsLocked, merged, patched
from tests.execution import cpu_tasks
from tests.execution.executing import stage, until

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(32, 64))).decode()
PASSPHRASE = "correct horse battery staple"
SECRETS = '{"token":"s3cr3t-t0ken"}'


# --- sealing


@pytest.mark.parametrize("keys", [KEY, PASSPHRASE, f"{OTHER_KEY},{KEY}", f" {KEY} , {OTHER_KEY} "])
def test_what_was_sealed_can_be_opened_and_not_read(keys: str) -> None:
    sealer = Sealer(keys)
    sealed = sealer.seal(SECRETS)
    assert sealed.startswith("v1:")
    assert "s3cr3t" not in sealed
    assert b"s3cr3t" not in base64.b64decode(sealed.rpartition(":")[2])
    assert sealer.open(sealed) == Sealer(keys).open(sealed) == SECRETS
    assert sealer.seal(SECRETS) != sealed  # equal secrets do not look equal


def test_without_a_key_secrets_are_kept_as_they_are() -> None:
    assert Sealer().seal(SECRETS) == f"plain:{SECRETS}"
    assert Sealer(KEY).open(f"plain:{SECRETS}") == SECRETS


def test_keys_can_be_rotated() -> None:
    old = Sealer(OTHER_KEY).seal(SECRETS)
    both = Sealer(f"{KEY},{OTHER_KEY}")
    assert both.open(old) == SECRETS
    new = both.seal(SECRETS)
    assert Sealer(KEY).open(new) == SECRETS
    with pytest.raises(SecretsLocked, match="another key"):
        Sealer(KEY).open(old)


@pytest.mark.parametrize("keys", ["", OTHER_KEY, PASSPHRASE])
def test_another_key_opens_nothing(keys: str) -> None:
    with pytest.raises(SecretsLocked, match="HORAE_ENCRYPTION_KEY"):
        Sealer(keys).open(Sealer(KEY).seal(SECRETS))


@given(st.integers(0, 200), st.integers(1, 255))
def test_what_was_changed_is_not_opened(place: int, change: int) -> None:
    version, key, data = Sealer(KEY).seal(SECRETS).split(":")
    raw = bytearray(base64.b64decode(data))
    raw[place % len(raw)] ^= change
    with pytest.raises(SecretsLocked):
        Sealer(KEY).open(f"{version}:{key}:{base64.b64encode(raw).decode()}")


@pytest.mark.parametrize("sealed", ["", "v2:abc", "v1:0000", "v1:00000000:####", SECRETS])
def test_what_is_no_seal_is_not_opened(sealed: str) -> None:
    with pytest.raises(SecretsLocked):
        Sealer(KEY).open(sealed)


@pytest.mark.parametrize("keys", ["short", f"{KEY},short", base64.b64encode(b"8 bytes!").decode()])
def test_a_key_that_can_be_guessed_is_refused(keys: str) -> None:
    with pytest.raises(Misconfigured, match="openssl rand"):
        Sealer(keys)


# --- what a draft asks for


def test_secrets_stay_or_go_or_change_as_somebody_asks() -> None:
    sealer = Sealer(KEY)
    before = sealer.seal('{"a":"1","b":{"c":"2","d":"3"}}')
    assert sealer.revised(None, before) is None
    assert sealer.revised("{}", before) is None
    assert sealer.revised(UNCHANGED) is None
    assert sealer.revised(UNCHANGED, before) == Opened('{"a":"1","b":{"c":"2","d":"3"}}', before)
    changed = sealer.revised(SecretsPatch('{"a":null,"b":{"d":"4"},"e":"5"}'), before)
    assert changed is not None
    assert json.loads(changed.text) == {"b": {"c": "2", "d": "4"}, "e": "5"}
    assert sealer.open(changed.sealed) == changed.text
    assert sealer.revised(SecretsPatch('{"a":null,"b":null}'), before) is None


def test_what_did_not_change_stays_sealed_as_it_is() -> None:
    sealer = Sealer(KEY)
    before = sealer.seal('{"a":"1","b":"2"}')
    for asked in ('{"b": "2", "a": "1"}', SecretsPatch('{"a":"1"}'), SecretsPatch("{}")):
        found = sealer.revised(asked, before)
        assert found is not None
        assert found.sealed == before


def test_all_secrets_can_be_replaced_without_knowing_the_old_ones() -> None:
    locked = Sealer(OTHER_KEY).seal(SECRETS)
    sealer = Sealer(KEY)
    found = sealer.revised('{"a":"1"}', locked)
    assert found is not None
    assert sealer.open(found.sealed) == '{"a":"1"}'
    for asked in (UNCHANGED, SecretsPatch('{"a":"1"}')):
        with pytest.raises(SecretsLocked):
            sealer.revised(asked, locked)


def test_secrets_have_limits() -> None:
    with pytest.raises(TooLarge):
        Sealer().revised(json.dumps({"a": "x" * 70_000}))
    with pytest.raises(Invalid, match="200 are allowed"):
        Sealer().revised(json.dumps({str(number): "word" for number in range(201)}))
    with pytest.raises(Invalid, match="must be an object"):
        Sealer().revised("[]")


# --- merging


@pytest.mark.parametrize(
    ("params", "secrets", "together"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"headers": {"X": "1"}}, {"headers": {"Y": "2"}}, {"headers": {"X": "1", "Y": "2"}}),
        ({"headers": None}, {"headers": {"Y": "2"}}, {"headers": {"Y": "2"}}),
        ({"a": {"b": 1}}, {"a": [2]}, {"a": [2]}),
        ({"a": [1]}, {"a": {"b": 2}}, {"a": {"b": 2}}),
        ({"n": 12345678901234567890123}, {"a": None}, {"n": 12345678901234567890123, "a": None}),
    ],
)
def test_secrets_win_and_objects_are_merged(params: Any, secrets: Any, together: Any) -> None:
    assert json.loads(merged(json.dumps(params, indent=1), json.dumps(secrets, indent=1))) == together


def test_a_patch_of_no_secrets_makes_some() -> None:
    assert json.loads(patched(None, '{"a":{"b":"c","d":null}}')) == {"a": {"b": "c"}}


# --- striking out


@pytest.mark.parametrize(
    ("secrets", "text", "shown"),
    [
        ({"a": "hunter2"}, "the password is hunter2, hunter2!", "the password is ***, ***!"),
        ({"a": "abc"}, "abc is too short to hide", "abc is too short to hide"),
        ({"a": {"b": ["deep-value"]}}, "a deep-value", "a ***"),
        ({"a": 123456}, "pin 123456", "pin ***"),
        ({"a": True, "b": None}, "True and None stay true and null", "True and None stay true and null"),
        ({"a": "long-value", "b": "long-value-2"}, "long-value-2 long-value", "*** ***"),
        ({"a": 'quo"te\\d'}, r'{"x": "quo\"te\\d"}', '{"x": "***"}'),
        ({"a": "line one\nline two"}, "line one\nline two", "***"),
        ({"a": "line number one\nline number two"}, "got: line number two", "got: ***"),
        ({"a": "line one\nline two"}, r"'line one\nline two'", "'***'"),
        ({"a": "a b&c=d/é"}, "GET /?q=a%20b%26c%3Dd%2F%C3%A9", "GET /?q=***"),
        ({"a": "a b&c=d"}, "GET /?q=a+b%26c%3Dd", "GET /?q=***"),
        ({"a": "user:hunter2"}, "Basic dXNlcjpodW50ZXIy", "Basic ***"),
        ({"a": " padded "}, "is padded.", "is ***."),
        ({"a": "s3cr3t-t0ken"}, "…the end of it: t0ken", "…the end of it: t0ken"),
        ({"a": "s3cr3t-t0ken"}, "t-t0ken and more", "*** and more"),
        ({"a": "s3cr3t-t0ken"}, "cut here: s3cr3t-t", "cut here: ***"),
        ({"a": "s3cr3t-t0ken"}, "cut here: s3cr3…", "cut here: ***"),
        ({}, "nothing to hide", "nothing to hide"),
    ],
)
def test_values_are_struck_out_however_they_are_spelled(secrets: Any, text: str, shown: str) -> None:
    assert Redactor(json.dumps(secrets)).text(text) == shown


ADDRESS = "https://ann:pa55@hooks.example.com/services/T0K3N/x%2Fy-z?key=k3y&format=json"


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        (ADDRESS, f"GET {ADDRESS}", "GET ***"),
        (ADDRESS, "no such path: /services/T0K3N/x%2Fy-z", "no such path: /***"),
        (ADDRESS, "no such path: /services/T0K3N/x/y-z, friend", "no such path: /***, friend"),
        (ADDRESS, "no hook T0K3N in your services", "no hook *** in your ***"),
        (ADDRESS, "https://other.example/T0K3N?format=json", "https://other.example/***?***"),
        (ADDRESS, "?key=k3y", "?***"),
        (ADDRESS, "/?key=k3y&amp;format=json", "/?***"),
        (ADDRESS, "login as pa55", "login as ***"),
        (ADDRESS, "hooks.example.com says json", "hooks.example.com says json"),
        ("https://example.com/hooks?q=a&b=T0K3N", "hooks: T0K3N", "hooks: ***"),
        ("https://[bad/T0K3N", "no T0K3N here", "no T0K3N here"),
        ("Bearer t0k3n", "the token t0k3n is unknown", "the token *** is unknown"),
        ("Basic YW5uOmh1bnRlcjI=", "the password hunter2 of ann", "the password *** of ann"),
        ("Basic t0k3n", "the token t0k3n is unknown", "the token *** is unknown"),
        ("user=ann; session=5ess10n", "no session 5ess10n", "no session ***"),
        ("a<b>&'c'", "see a&lt;b&gt;&amp;&#x27;c&#x27; or a&lt;b&gt;&amp;'c'", "see *** or ***"),
        ("a b/ü", "%61: a%20b%2f%c3%bc", "%61: ***"),
    ],
)
def test_tokens_inside_of_values_are_struck_out_by_themselves(secret: str, text: str, shown: str) -> None:
    assert Redactor(json.dumps({"url": secret})).text(text) == shown


def test_values_are_struck_from_data() -> None:
    redactor = Redactor('{"a":"hunter2","n":123456}')
    text = json.dumps({"hunter2": ["x hunter2", 123456, 7, True, None], "e": "é"})
    assert json.loads(redactor.json(text)) == {"***": ["x ***", "***", 7, True, None], "e": "é"}


@given(
    st.text(min_size=4, max_size=30).filter(lambda text: text.strip("*") == text and len(text.strip()) >= 4),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_no_value_is_left_anywhere(value: str, before: str, after: str) -> None:
    shown = Redactor(json.dumps({"a": value})).text(f"{before}{value}{after}")
    assert value not in shown


ALIKE = json.dumps({str(n): "a" * 300 + f"{n:04}" for n in range(200)})
REPEATED = json.dumps({str(n): "ab" * 2000 + f"{n:04}" for n in range(15)})
ESCAPED = json.dumps({"a": "\x01<é&" * 6000})


@pytest.mark.parametrize("secrets", [ALIKE, REPEATED, ESCAPED])
@pytest.mark.parametrize("text", ["a" * 65_536, "ab" * 32_768, "\x01<é&" * 16_384])
def test_striking_out_takes_no_longer_the_more_the_values_have_in_common(secrets: str, text: str) -> None:
    began = time.process_time()
    Redactor(secrets).text(text)
    assert time.process_time() - began < 1


# --- in attempts


class Leak(Exception):
    pass


def app_that_tells() -> Horae:
    app = Horae()

    @app.task("tell.async")
    async def tell(run: Run, token: str, plain: str = "") -> dict[str, str]:
        run.log.info("my token is %s", token)
        return {"token": token, "plain": plain}

    @app.task("tell.thread")
    def tell_in_thread(run: Run, token: str, plain: str = "") -> dict[str, str]:
        run.log.info("my token is %s", token)
        return {"token": token, "plain": plain}

    @app.task("tell.error")
    async def tell_by_error(token: str) -> None:
        raise Leak(f"cannot use {token}")

    @app.task("tell.fatal")
    def tell_by_fatal(token: str) -> None:
        raise Fatal(f"cannot use {token}")

    app.registry.add(cpu_tasks.tell_secret)
    return app


@pytest.mark.parametrize("task", ["tell.async", "tell.thread", "tell.process"])
async def test_a_task_gets_its_secrets_and_tells_them_to_nobody(task: str) -> None:
    sealer = Sealer(KEY)
    async with stage(app_that_tells(), sealer=sealer) as play:
        attempt = play.begin(task, secrets=sealer.seal(SECRETS), plain="visible", token="overridden")
        result = await attempt.result()
        assert isinstance(result, Success)
        assert result.result is not None
        assert msgspec.json.decode(result.result) == {"token": "***", "plain": "visible"}
        assert "my token is ***" in await play.log(attempt, "my token")


@pytest.mark.parametrize(("task", "type_"), [("tell.error", "Leak"), ("tell.fatal", "Fatal")])
async def test_errors_and_their_traces_are_struck_too(task: str, type_: str) -> None:
    async with stage(app_that_tells()) as play:
        attempt = play.begin(task, secrets=Sealer().seal(SECRETS))
        result = await attempt.result()
        assert isinstance(result, Failure)
        assert (result.error.type, result.error.message) == (type_, "cannot use ***")
        if type_ == "Leak":
            assert "s3cr3t" not in await play.log(attempt, "Leak")


async def test_programs_and_their_output_are_struck_too() -> None:
    secrets = Sealer().seal('{"env":{"TOKEN":"s3cr3t-t0ken"},"stdin":"and-t0ld-it"}')
    async with stage() as play:
        command = ["sh", "-c", "echo $TOKEN $PLAIN; cat; echo; exit 3"]
        attempt = play.begin("shell.run", secrets=secrets, command=command, env={"PLAIN": "visible"})
        result = await attempt.result()
        assert isinstance(result, Failure)
        assert result.error.message == "exit code 3: *** visible\n***"
        log = await play.log(attempt, "visible")
        assert "OUT *** visible\n" in log
        assert "t0ld" not in log


async def test_the_end_of_a_long_output_shows_no_part_of_a_secret() -> None:
    secret = "0123456789" * 5
    secrets = Sealer().seal(json.dumps({"env": {"TOKEN": secret}}))
    async with stage() as play:
        command = ["sh", "-c", "printf %s $TOKEN; head -c 4080 /dev/zero | tr '\\0' x"]
        result = await play.result("shell.run", secrets=secrets, command=command)
        assert isinstance(result, Success)
        assert result.result is not None
        output = msgspec.json.decode(result.result)["output"]
        assert output == "***" + "x" * 4080


async def test_large_parameters_are_merged_as_well() -> None:
    async with stage(app_that_tells()) as play:
        play.blobs.kept["params/x"] = json.dumps({"plain": "p" * 100}).encode()
        attempt = play.begin("tell.async", blob="params/x", secrets=Sealer().seal(SECRETS))
        result = await attempt.result()
        assert isinstance(result, Success)
        assert result.result is not None
        assert msgspec.json.decode(result.result) == {"token": "***", "plain": "p" * 100}


async def test_secrets_that_cannot_be_opened_fail_the_attempt_and_say_why() -> None:
    async with stage(app_that_tells(), sealer=Sealer(OTHER_KEY)) as play:
        attempt = play.begin("tell.async", secrets=Sealer(KEY).seal(SECRETS))
        assert attempt.results == []
        result = await attempt.result()
        assert isinstance(result, Failure)
        assert (result.error.type, result.fatal) == ("secrets", False)  # a worker that has the key may be next
        assert "HORAE_ENCRYPTION_KEY" in result.error.message


async def test_an_attempt_that_was_stopped_first_is_stopped() -> None:
    async with stage(app_that_tells(), sealer=Sealer(OTHER_KEY)) as play:
        attempt = play.begin("tell.async", secrets=Sealer(KEY).seal(SECRETS))
        attempt.running.stop()
        assert not isinstance(await attempt.result(), Failure)


async def test_wrong_parameters_are_told_without_their_values() -> None:
    async with stage(app_that_tells()) as play:
        attempt = play.begin("tell.async", secrets=Sealer().seal('{"token":["s3cr3t-t0ken"]}'))
        result = await attempt.result()
        assert isinstance(result, Failure)
        assert "s3cr3t" not in f"{result} {await play.log(attempt)}"


async def test_large_results_and_large_secrets_are_searched_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    class Watched(Redactor):
        def __init__(self, secrets: str) -> None:
            threads.append(threading.current_thread().name)
            super().__init__(secrets)

        def json(self, text: str) -> str:
            threads.append(threading.current_thread().name)
            return super().json(text)

    monkeypatch.setattr(attempt_module, "Redactor", Watched)
    app = Horae()

    @app.task("tell.much")
    async def tell_much(token: str) -> list[str]:
        return [token] * (100_000 // len(token))

    async with stage(app) as play:
        for size in (10, 10_000):
            result = await play.result("tell.much", secrets=Sealer().seal(json.dumps({"token": "t" * size})))
            assert isinstance(result, Success)
            assert result.result is not None
            assert set(json.loads(result.result)) == {"***"}
    assert threads == ["MainThread", "horae-compute_0", "horae-compute_0", "horae-compute_0"]


async def test_a_result_that_is_being_searched_is_reported_before_the_executor_ends() -> None:
    app = Horae()

    @app.task("tell.much")
    async def tell_much(token: str) -> list[str]:
        return [token] * 50_000

    async with stage(app) as play:
        attempt = play.begin("tell.much", secrets=Sealer().seal(SECRETS))
        await until(lambda: attempt.running.ended)
        attempt.running.kill()
    [result] = attempt.results
    assert isinstance(result, Success)
    assert result.result is not None
    assert json.loads(result.result) == ["***"] * 50_000
