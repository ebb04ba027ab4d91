"""Clusters as fixtures, with their logs in the report of a failed test."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.system.cluster import Cluster
from tests.system.combinations import WHEELS, Combination, Servers, scratch_settings, scratch_store

STORES = ("sqlite", "postgres")
QUICK = {  # settings under which a death is noticed in two seconds
    "HORAE_HEARTBEAT_SECONDS": "0.3",
    "HORAE_DEAD_AFTER_SECONDS": "1.5",
    "HORAE_HORIZON_SECONDS": "5",
    "HORAE_DRAIN_SECONDS": "1",
}

OpenCluster = Callable[..., Cluster]

_open: list[Cluster] = []


@contextmanager
def open_combination(
    combination: Combination, folder: Path, servers: Servers = WHEELS, **settings: str
) -> Iterator[Cluster]:
    """Open a cluster without processes on a scratch store with a queue and blobs of its own."""
    with (
        without_loop(scratch_store(combination.store, folder, servers)) as store,
        scratch_settings(combination, servers) as addresses,
        _opened(folder, store, **addresses, **settings) as cluster,
    ):
        yield cluster


@contextmanager
def open_cluster(kind: str, folder: Path, *, migrated: bool = True, **settings: str) -> Iterator[Cluster]:
    """Open a cluster without processes on a scratch store, which is migrated unless the test does that itself."""
    with without_loop(scratch_store(kind, folder)) as store, _opened(folder, store, migrated, **settings) as cluster:
        yield cluster


@contextmanager
def _opened(folder: Path, store: str, migrated: bool = True, **settings: str) -> Iterator[Cluster]:
    with Cluster(folder, store, **settings) as cluster:
        if migrated:
            cluster.migrate()
        _open.append(cluster)
        try:
            yield cluster
        finally:
            _open.remove(cluster)
        cluster.close()
        cluster.check()


@contextmanager
def without_loop(store: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """A scratch store for a test without an event loop."""
    with asyncio.Runner() as runner:
        address = runner.run(store.__aenter__())
        try:
            yield address
        finally:
            runner.run(store.__aexit__(None, None, None))


def patience(request: pytest.FixtureRequest) -> float:
    """Loosen bounds of milliseconds, except for the acceptance tests, which have the machine to themselves."""
    return 1.0 if request.node.get_closest_marker("acceptance") else 10.0


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return str(request.param)


@pytest.fixture
def new_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenCluster]:
    """A function that opens clusters, which end with the test."""
    with ExitStack() as stack:

        def opened(kind: str, *, migrated: bool = True, **settings: str) -> Cluster:
            folder = tmp_path / f"cluster-{kind}"
            folder.mkdir(parents=True)
            cluster = stack.enter_context(open_cluster(kind, folder, migrated=migrated, **settings))
            cluster.patience = patience(request)
            return cluster

        yield opened


@pytest.fixture(scope="module", params=STORES)
def one_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node with every role, shared by the tests of a module."""
    with open_cluster(str(request.param), tmp_path_factory.mktemp("one-node")) as cluster:
        cluster.patience = patience(request)
        cluster.node()
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the processes and the state of the jobs to the report of a failure."""
    report = yield
    if report.failed and call.when in ("setup", "call"):
        for cluster in _open:
            report.sections.append((f"processes on {cluster.store}", cluster.story()))
            if cluster.rest.jobs and cluster.of_role("api"):
                report.sections.append(("jobs", cluster.rest.story()))
    return report
