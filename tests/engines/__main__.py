"""`make engines`: puts real servers of DynamoDB, SQS, S3 and Redis into a folder of the user's cache, once.

What a machine has no tool for is named and left out; the tests that need it are skipped with that reason.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.engines.places import (
    DYNAMODB_LOCAL,
    ELASTICMQ,
    VERSITYGW,
    dynamodb_local_folder,
    elasticmq_folder,
    engines_folder,
    redis_program,
    versitygw_program,
)

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>horae</groupId><artifactId>engines</artifactId><version>1</version><dependencies><dependency>
<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency></dependencies></project>
"""
LAUNCHER = Path(__file__).with_name("LoopbackDynamoDB.java")
SHOWN_LINES = 15  # of what a tool wrote before it failed


class Missing(Exception):
    """What this machine lacks; the message says how to come by it."""


class Failed(Exception):
    """A tool that is here did not do its work."""


def main() -> int:
    """Provision every server; returns 1 when one failed that this machine has the tools for."""
    print(f"The servers go to {engines_folder()}", flush=True)
    failed = [name for name, provide in SERVERS.items() if not _provided(name, provide)]
    return 1 if failed else 0


def _provided(name: str, provide: Callable[[], bool]) -> bool:
    began = time.monotonic()
    try:
        is_new = provide()
    except Missing as exc:
        print(f"  {name}: left out; {exc}. Its tests are skipped.", flush=True)
    except Failed as exc:
        print(f"  {name}: FAILED\n{exc}", flush=True)
        return False
    else:
        print(f"  {name}: {f'installed in {time.monotonic() - began:.0f} s' if is_new else 'is there'}", flush=True)
    return True


def dynamodb_local() -> bool:
    """DynamoDB Local with a launcher that listens on the loopback alone."""
    if dynamodb_local_folder().exists():
        return False
    _need("java", "a Java development kit of version 17 or newer")
    _need("javac", "a Java development kit of version 17 or newer")
    with _Half(dynamodb_local_folder()) as folder:
        _classes("com.amazonaws", "DynamoDBLocal", DYNAMODB_LOCAL, folder)
        _run(["javac", "-cp", f"{folder}/lib/*", "-d", str(folder), str(LAUNCHER)])
    return True


def elasticmq() -> bool:
    """ElasticMQ, a server of SQS."""
    if elasticmq_folder().exists():
        return False
    _need("java", "a Java runtime of version 17 or newer")
    with _Half(elasticmq_folder()) as folder:
        _classes("org.elasticmq", "elasticmq-server_2.13", ELASTICMQ, folder)
    return True


def versitygw() -> bool:
    """The Versity gateway, a server of S3 over a folder."""
    program = versitygw_program()
    if program.exists():
        return False
    _need("go", "Go 1.23 or newer")
    with _Half(program.parent) as folder:
        environ = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
        _run(["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}"], environ)
    return True


def redis() -> bool:
    """The distribution's Redis, where this user may install packages."""
    if redis_program() is not None:
        return False
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing("it needs redis-server; on Debian or Ubuntu: apt-get install redis-server")
    # Its package would start a server on the usual port.
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        _run(["apt-get", "update", "-qq"], environ)
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"], environ)
    finally:
        if is_ours:
            policy.unlink()
    return True


SERVERS = {
    f"DynamoDB Local {DYNAMODB_LOCAL}": dynamodb_local,
    f"ElasticMQ {ELASTICMQ} (SQS)": elasticmq,
    f"versitygw {VERSITYGW} (S3)": versitygw,
    "Redis": redis,
}


class _Half:
    """A folder that gets its name when it is complete, so that an interrupted installation starts over."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> Path:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self._place.name}.", dir=self._place.parent))
        return self._folder

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            shutil.rmtree(self._folder)
            return
        self._folder.chmod(0o755)
        self._folder.rename(self._place)


def _classes(group: str, artifact: str, version: str, folder: Path) -> None:
    """Fetch a Java program with all that it needs into `lib`."""
    _need("mvn", "Maven")
    (folder / "pom.xml").write_text(POM.format(group=group, artifact=artifact, version=version))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
    _run(["mvn", "--batch-mode", "--quiet", "--file", str(folder / "pom.xml"), *goal])


def _need(program: str, what: str) -> None:
    if shutil.which(program) is None:
        raise Missing(f"it needs {what} (`{program}` is not on the path)")


def _run(command: Sequence[str], environ: dict[str, str] | None = None) -> None:
    print(f"    {' '.join(command[:3])} …", flush=True)
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").splitlines()[-SHOWN_LINES:]
        raise Failed("\n".join([f"{' '.join(command)} ended with {done.returncode}:", *said]))


if __name__ == "__main__":
    sys.exit(main())
