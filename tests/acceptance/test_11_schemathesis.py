"""Line 1 of "The whole contract": requests generated from the OpenAPI document get only documented answers."""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.api.fuzzing import fuzz, token_of, walk
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance

SECRET = "a secret that is long enough for HS256"
REQUESTS = 20_000


def test_20_000_requests_get_only_answers_that_the_document_tells_of(
    new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    cluster = new_cluster("postgres", HORAE_AUTH="jwt", HORAE_JWT_SECRET=SECRET)
    server = cluster.node()
    assert server.url is not None

    ask, begun = {"url": server.url, "token": token_of(SECRET)}, time.monotonic()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        walked = pool.submit(walk, **ask, requests=8_000)
        asked = pool.submit(fuzz, **ask, phases=["examples", "coverage", "fuzzing"], examples=250)
        seen = asked.result() + walked.result()
    seen.seconds = time.monotonic() - begun

    for line in seen.table():
        report_figure(line)
    assert not seen.broken, seen.story()
    assert not seen.failures, seen.story()
    assert not seen.without_success()
    assert seen.requests >= REQUESTS
    assert max(max(statuses) for statuses in seen.answers.values()) < 500
