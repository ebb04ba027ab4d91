"""Issue 5, line 2: whichever safety line is reverted, tests of `make test` fail."""

from pathlib import Path

import pytest

from tests.reverts.catalogue import REVERTS, Revert
from tests.reverts.product_copy import copy_product, failing

pytestmark = pytest.mark.acceptance


def test_the_product_as_it_is_passes(tmp_path: Path) -> None:
    failed, output = failing(copy_product(tmp_path), [test for each in REVERTS for test in each.tests])
    assert not failed, output


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.name)
def test_a_reverted_safety_line_is_noticed(revert: Revert, tmp_path: Path) -> None:
    failed, output = failing(copy_product(tmp_path, revert), revert.tests)
    assert failed >= set(revert.tests), output
