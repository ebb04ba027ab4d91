"""The attacks of one owner that once stopped others, in small portions that are repeated without end."""

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from tests.system.cluster import Server
from tests.system.neighbours import UNKNOWN, Sockets, client
from tests.system.rest import Document

ATTACKER = "attacker"
TIMEOUT_SECONDS = 20.0
REACHED = {200, 429, 503}  # answers to an attack that is well-formed: done, or refused for its size
PAUSE_SECONDS = 0.2
ANSWER = b"a" * 64_000  # of the server that secrets are sent to
SECRETS = {f"X-{number}": "a" * (20 + number) for number in range(200)}


class RedList:
    """Attacks the nodes of a cluster in turn, in a thread of its own."""

    def __init__(self, nodes: Callable[[], Sequence[Server]], answering: int, seed: int) -> None:
        self._nodes = nodes
        self._answering = answering  # the port of a server that answers to http.request
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._failure: BaseException | None = None
        self._numbers = 0
        self.done: Counter[str] = Counter()  # attacks that reached a node, by name
        self.attacks: Sequence[Callable[[Server], None]] = (
            self.blocked_gates,
            self.queue_names,
            self.searches,
            self.streams,
            self.unknown_tasks,
            self.secrets_to_strike_out,
            self.time_zones,
            self.name_lookups,
        )

    def __enter__(self) -> "RedList":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _go_on(self) -> None:
        try:
            while not self._over.wait(PAUSE_SECONDS):
                for attack in self._rng.sample(self.attacks, len(self.attacks)):
                    nodes = self._nodes()
                    if nodes and not self._over.is_set():
                        self._strike(attack, self._rng.choice(nodes))
        except BaseException as exc:  # noqa: BLE001 - raised when the soak leaves
            self._failure = exc

    def _strike(self, attack: Callable[[Server], None], node: Server) -> None:
        """Attack a node; whether it answers, refuses or dies meanwhile does not matter."""
        with contextlib.suppress(httpx2.TransportError, OSError, AssertionError):
            attack(node)
            self.done[attack.__name__] += 1

    def _create(self, node: Server, jobs: Sequence[Document]) -> None:
        with client(node, ATTACKER) as attacker:
            answer = attacker.post("/v1/jobs/batch", json={"jobs": list(jobs)}, timeout=TIMEOUT_SECONDS)
        assert answer.status_code in REACHED, answer.text[:500]

    def _names(self, count: int) -> list[str]:
        """Names that were never used."""
        self._numbers += count
        return [f"name-{number}" for number in range(self._numbers - count, self._numbers)]

    # --- the list

    def blocked_gates(self, node: Server) -> None:
        """Ordering keys that a failed run blocks, with another run behind it."""
        for task in ("demo.fail", "demo.echo"):
            fields: Document = {"task": task, "max_retries": 0, "on_failure": "block"}
            self._create(node, [{**fields, "ordering_key": name} for name in self._names(100)])
            self._numbers -= 100 if task == "demo.fail" else 0

    def queue_names(self, node: Server) -> None:
        """Queues that nobody ever used, each with a run that never starts."""
        self._create(node, [{**UNKNOWN, "queue": name} for name in self._names(300)])

    def searches(self, node: Server) -> None:
        """Searches that find nothing, many at a time."""
        with client(node, ATTACKER) as attacker, ThreadPoolExecutor(30) as pool:
            asked = [pool.submit(attacker.get, "/v1/jobs", params={"q": "nomatch"}) for _ in range(60)]
            answers = {each.result(TIMEOUT_SECONDS).status_code for each in asked}
        assert answers <= REACHED, answers

    def streams(self, node: Server) -> None:
        """As many event streams as one owner may have."""
        with client(node, ATTACKER) as attacker:
            token = attacker.headers["Authorization"]
        request = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n".encode()
        with Sockets(str(node.url), [request] * 300, keep=b" 200 "):
            self.queue_names(node)

    def unknown_tasks(self, node: Server) -> None:
        """Due runs of a task that nobody knows, in one queue."""
        self._create(node, [UNKNOWN] * 1000)

    def secrets_to_strike_out(self, node: Server) -> None:
        """Secrets that begin alike, and a long answer to search for them."""
        params = {"method": "GET", "url": f"http://127.0.0.1:{self._answering}/"}
        job = {"task": "http.request", "params": params, "secrets": {"headers": SECRETS}, "max_retries": 0}
        self._create(node, [job] * 5)

    def time_zones(self, node: Server) -> None:
        """Schedules in time zones that do not exist, for each of which a name is suggested."""
        zones = (f"Europe/Pari{name}" for name in self._names(500))
        self._create(
            node,
            [
                {"task": "demo.echo", "schedule": {"type": "cron", "expression": "@daily", "timezone": zone}}
                for zone in zones
            ],
        )

    def name_lookups(self, node: Server) -> None:
        """Requests to hosts that do not exist."""
        hosts = (f"{name}.nowhere.invalid" for name in self._names(50))
        self._create(
            node,
            [{"task": "http.request", "params": {"url": f"http://{host}/"}, "max_retries": 0} for host in hosts],
        )


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering() -> Iterator[int]:
    """A server with a long answer; yields its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
