"""The measurements: for each part of the table, which product does which work, and how much of it."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from benchmarks import floor, http_load, submitting
from benchmarks.holding import held_transaction
from benchmarks.machine import watched
from benchmarks.peers.environment import drive
from benchmarks.servers import postgres_address, scratch_redis
from tests.live import HORAE, environment

Figures = dict[str, Any]

POSTGRES, SQLITE = "Horae on PostgreSQL", "Horae on SQLite"
PGQUEUER, CELERY = "PgQueuer on PostgreSQL", "Celery on Redis"
BARE_POSTGRES, BARE_POSTGRES_TWO = "bare PostgreSQL", "bare PostgreSQL, two connections"
BARE_SQLITE = "bare SQLite"
EMPTY, FULL_STORE = "an empty store", "jobs that wait"
FREE, HELD = "nothing else", "a transaction held open"
API = "the API"

PARTS = ("now", "enqueue", "timed", "herd", "cron", "api")
LONG_PARTS = ("backlog", "soak", "held")  # half an hour and more: only when they are asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size of each measurement."""

    rounds: int = 3
    jobs: int = 250_000  # of `now`; the others get what takes them as long
    pgqueuer_jobs: int = 80_000
    celery_jobs: int = 4_000
    floor_jobs: int = 200_000
    seconds: int = 60  # of `timed` and `cron`
    peer_seconds: int = 20
    rates: Sequence[int] = (1_000, 10_000, 20_000)
    sqlite_rates: Sequence[int] = (1_000, 10_000)
    peer_rates: Sequence[int] = (100, 1_000)
    herds: Sequence[int] = (2_000, 100_000)
    crons: int = 10_000
    api_seconds: int = 10
    backlog: int = 10_000_000
    soak_rate: int = 5_000
    soak_seconds: int = 1_800
    held_seconds: int = 300


QUICK = Sizes(
    rounds=1,
    jobs=40_000,
    pgqueuer_jobs=15_000,
    celery_jobs=1_000,
    floor_jobs=40_000,
    seconds=8,
    peer_seconds=5,
    herds=(2_000, 20_000),
    crons=2_000,
    api_seconds=2,
    backlog=200_000,
    soak_seconds=180,
    held_seconds=30,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measurement: a product and its work."""

    part: str
    who: str
    work: str  # beside the part, such as a rate; "" when there is but one
    measure: Callable[[], Figures]

    @property
    def name(self) -> str:
        return f"{self.who}, {self.work}" if self.work else self.who

    def run(self) -> Figures:
        """Return the figures, with the share of stolen time."""
        with watched() as seen:
            figures = self.measure()
        return {**seen, **figures, "who": self.who, "work": self.work}


class Bench(ExitStack):
    """Runs measurements, and starts stores when they are first needed."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self._sizes = sizes

    @cached_property
    def postgres(self) -> str:
        return postgres_address()

    @cached_property
    def redis(self) -> str:
        return self.enter_context(scratch_redis())

    @cached_property
    def sqlite(self) -> str:
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="horae-bench-"))
        return f"sqlite:///{folder}/horae.db"

    def measurements(self, part: str) -> list[Measurement]:
        """The measurements of a part, in the order of one round."""
        parts: dict[str, Callable[[], Iterator[Measurement]]] = {
            "now": self._now,
            "enqueue": self._enqueue,
            "timed": self._timed,
            "herd": self._herd,
            "cron": self._cron,
            "api": self._api,
            "backlog": self._backlog,
            "soak": self._soak,
            "held": self._held,
        }
        return list(parts[part]())

    # --- the parts

    def _now(self) -> Iterator[Measurement]:
        sizes = self._sizes
        yield self._horae("now", POSTGRES, jobs=sizes.jobs)
        yield self._peer("now", PGQUEUER, jobs=sizes.pgqueuer_jobs)
        yield _plain("now", BARE_POSTGRES, lambda: floor.measure_postgres(self.postgres, sizes.floor_jobs))
        two = partial(floor.measure_postgres, jobs=sizes.floor_jobs, connections=2)
        yield _plain("now", BARE_POSTGRES_TWO, lambda: two(self.postgres))
        yield self._horae("now", SQLITE, jobs=sizes.jobs)
        yield _plain("now", BARE_SQLITE, lambda: floor.measure_sqlite(sizes.floor_jobs))
        yield self._peer("now", CELERY, jobs=sizes.celery_jobs)

    def _enqueue(self) -> Iterator[Measurement]:
        sizes = self._sizes
        yield _plain("enqueue", POSTGRES, lambda: submitting.measure(self.postgres, sizes.jobs))
        yield self._peer("enqueue", PGQUEUER, jobs=sizes.pgqueuer_jobs)
        yield _plain("enqueue", BARE_POSTGRES, lambda: floor.measure_postgres_inserts(self.postgres, sizes.floor_jobs))
        yield _plain("enqueue", SQLITE, lambda: submitting.measure(self.sqlite, sizes.jobs))
        yield self._peer("enqueue", CELERY, jobs=sizes.celery_jobs)

    def _timed(self) -> Iterator[Measurement]:
        sizes = self._sizes
        for rate in sizes.rates:
            yield self._horae("timed", POSTGRES, rate=rate, seconds=sizes.seconds)
        for rate in sizes.sqlite_rates:
            yield self._horae("timed", SQLITE, rate=rate, seconds=sizes.seconds)
        for peer in (PGQUEUER, CELERY):
            for rate in sizes.peer_rates:
                yield self._peer("timed", peer, rate=rate, seconds=sizes.peer_seconds)

    def _herd(self) -> Iterator[Measurement]:
        small, large = self._sizes.herds
        yield self._horae("herd", POSTGRES, jobs=small)
        yield self._peer("herd", PGQUEUER, jobs=small)
        yield self._peer("herd", CELERY, jobs=small)
        yield self._horae("herd", SQLITE, jobs=small)
        yield self._horae("herd", POSTGRES, jobs=large)

    def _cron(self) -> Iterator[Measurement]:
        for overlap in ("allow", "skip"):
            yield self._horae("cron", POSTGRES, rate=self._sizes.crons, seconds=self._sizes.seconds, overlap=overlap)

    def _api(self) -> Iterator[Measurement]:
        yield _plain("api", API, lambda: http_load.measure(self.postgres, self._sizes.api_seconds))

    def _backlog(self) -> Iterator[Measurement]:
        sizes = self._sizes
        for who, backlog in ((EMPTY, 0), (FULL_STORE, sizes.backlog)):
            yield self._horae("backlog", who, mode="now", jobs=sizes.jobs, backlog=backlog)
            yield self._horae("backlog", who, mode="timed", rate=10_000, seconds=sizes.seconds, backlog=backlog)

    def _soak(self) -> Iterator[Measurement]:
        yield self._horae("soak", POSTGRES, mode="timed", rate=self._sizes.soak_rate, seconds=self._sizes.soak_seconds)

    def _held(self) -> Iterator[Measurement]:
        free = self._horae("held", FREE, mode="now", seconds=self._sizes.held_seconds)
        yield free

        def held() -> Figures:
            with held_transaction(self.postgres):
                return free.measure()

        yield Measurement(part="held", who=HELD, work=free.work, measure=held)

    # --- who does the work

    def _horae(self, part: str, who: str, **options: object) -> Measurement:
        """Run `horae bench` in the mode of the part unless the options name another."""
        said = {"mode": part, **{name: value for name, value in options.items() if value}}

        def measure() -> Figures:
            return horae_bench(self.sqlite if who == SQLITE else self.postgres, **said)

        return Measurement(part=part, who=who, work=_words(said, but=part), measure=measure)

    def _peer(self, part: str, who: str, **options: int) -> Measurement:
        peer = "pgqueuer" if who == PGQUEUER else "celery"

        def measure() -> Figures:
            return drive(peer, part, self.postgres if who == PGQUEUER else self.redis, **options)

        return Measurement(part=part, who=who, work=_words(options, but=part), measure=measure)


def _plain(part: str, who: str, measure: Callable[[], Figures]) -> Measurement:
    return Measurement(part=part, who=who, work="", measure=measure)


def _words(options: dict[str, Any], *, but: str) -> str:
    """Options as text for readers."""
    said = {
        "mode": "{}",
        "rate": "{:,} a second",
        "jobs": "{:,} jobs",
        "seconds": "{:,} s",
        "backlog": "{:,} waiting",
        "overlap": "overlap {}",
    }
    return ", ".join(said[name].format(value) for name, value in options.items() if value != but)


def horae_bench(store: str, *, program: Path = HORAE, **options: object) -> Figures:
    """Return the report of `horae bench`, also if it found problems."""
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [program, "bench", "--store", store, *arguments, "-o", "json"],
        cwd=tempfile.gettempdir(),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        figures: Figures = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"horae bench ended with {done.returncode}:\n{done.stdout}{done.stderr}") from None
    return figures
