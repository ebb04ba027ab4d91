"""A few hundred requests generated from the OpenAPI document; the full size is in `tests/acceptance`."""

from tests.api.fuzzing import fuzz, token_of
from tests.system.fixtures import OpenCluster, new_cluster

__all__ = ["new_cluster"]

SECRET = "a secret that is long enough for HS256"


def test_whatever_is_asked_gets_an_answer_that_the_document_tells_of(new_cluster: OpenCluster) -> None:
    cluster = new_cluster("sqlite", HORAE_AUTH="jwt", HORAE_JWT_SECRET=SECRET)
    server = cluster.node()
    assert server.url is not None

    seen = fuzz(server.url, token=token_of(SECRET), examples=1, phases=["examples", "fuzzing", "stateful"])

    assert not seen.broken, seen.story()
    assert not seen.failures, seen.story()
    assert seen.requests > 300
    assert max(max(statuses) for statuses in seen.answers.values() if statuses) < 500
