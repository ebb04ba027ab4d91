"""The same scenario over REST on every combination of store, queue and blobs."""

from pathlib import Path

import pytest

from tests.system.combinations import COMBINATIONS, Combination
from tests.system.fixtures import QUICK, open_combination, patience
from tests.system.scenario import run_scenario


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_a_combination_of_store_queue_and_blobs_keeps_every_promise(
    combination: Combination, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with open_combination(combination, tmp_path, **QUICK) as cluster:
        cluster.patience = patience(request)
        run_scenario(cluster)
