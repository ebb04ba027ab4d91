"""The same scenario over REST on every combination of store, queue and blobs."""

from pathlib import Path

import pytest

from tests.system.combinations import COMBINATIONS, Combination
from tests.system.fixtures import QUICK, open_combination
from tests.system.scenario import run_scenario

# Together they have every adapter; `make acceptance` has the others, and all of them on the real servers.
BRIEFLY = ("postgres-redis", "dynamodb-store", "dynamodb-sqs-s3")


def _parameter(combination: Combination) -> object:
    marks = () if str(combination) in BRIEFLY else (pytest.mark.acceptance,)
    return pytest.param(combination, marks=marks, id=str(combination))


@pytest.mark.parametrize("combination", [_parameter(each) for each in COMBINATIONS])
def test_a_combination_of_store_queue_and_blobs_keeps_every_promise(
    combination: Combination, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with open_combination(combination, tmp_path, **QUICK) as cluster:
        cluster.patience = 10.0  # however busy the machine
        run_scenario(cluster)
