"""Repeated, concurrent, batched and paged requests to real servers; the acceptance suite has the full size."""

from collections.abc import Iterator

import pytest

from tests.system import batches, paging, repeats
from tests.system.cluster import Cluster
from tests.system.fixtures import STORES, open_cluster, patience


@pytest.fixture(scope="module", params=STORES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two servers with every role on one store."""
    with open_cluster(str(request.param), tmp_path_factory.mktemp("pair")) as cluster:
        cluster.patience = patience(request)
        cluster.ready(cluster.node(wait=False), cluster.node(wait=False))
        yield cluster


def test_requests_at_once_with_one_key_make_one_job(pair: Cluster) -> None:
    repeats.check_storm(pair, requests=20)


def test_of_patches_at_once_of_one_revision_one_succeeds(pair: Cluster) -> None:
    repeats.check_patches(pair, requests=10)


def test_the_bad_ones_of_a_batch_are_pointed_at(pair: Cluster) -> None:
    batches.check_batch(pair, jobs=200, wrong=10)
    batches.check_batch(pair, jobs=100, wrong=5, lines=True)


def test_pages_tell_of_each_run_once_while_new_ones_arrive(pair: Cluster) -> None:
    pair.rest.create_many([{"task": "demo.echo", "schedule": "2099-01-01T00:00:00Z"}] * 100)
    paging.check_paging(pair, runs=100, limit=10, timed=False)


def test_an_act_whose_answer_is_lost_with_its_server_is_done_once(pair: Cluster) -> None:
    repeats.check_lost_create(pair, "lost")
