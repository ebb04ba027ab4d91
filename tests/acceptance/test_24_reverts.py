"""Issue 5, line 2: whichever safety line is reverted, tests of the ordinary run fail."""

from pathlib import Path

import pytest

from tests.reverts.lines import REVERTS, Revert
from tests.reverts.trying import copy_product, failing, revert

pytestmark = pytest.mark.acceptance


def test_the_product_as_it_is_passes(tmp_path: Path) -> None:
    failed, said = failing(copy_product(tmp_path), [test for each in REVERTS for test in each.tests])
    assert not failed, said


@pytest.mark.parametrize("line", REVERTS, ids=lambda line: line.name)
def test_a_reverted_safety_line_is_noticed(line: Revert, tmp_path: Path) -> None:
    source = copy_product(tmp_path)
    revert(source, line)
    failed, said = failing(source, line.tests)
    assert failed >= set(line.tests), said
