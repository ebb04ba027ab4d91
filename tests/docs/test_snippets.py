"""Every snippet of the documentation runs as printed, except a few that are listed here."""

from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, PICTURES, blocks_of, name_of
from tests.docs.stage import opened_stage

PLAYED = [page for page in PAGES if page.name != "README.md" and any(block.is_run for block in blocks_of(page))]

# Blocks that cannot be run in a test. Before you add one, look for a way to run it.
UNRUN = {
    ("README.md", "sh"): 2,  # `make dev`, which the test and `tests/acceptance/test_01_dev.py` start; `pip install`
    ("docs/internals/benchmarking.md", "sh"): 1,  # a comparison of half an hour
    ("docs/operations/deploy.md", "dockerfile"): 1,
    ("docs/operations/deploy.md", "haproxy"): 1,
    ("docs/operations/deploy.md", "nginx"): 1,
    (
        "docs/operations/deploy.md",
        "sh",
    ): 5,  # pip, Docker, Kubernetes, systemd; `tests/deploy` checks the files they use
    ("docs/guides/archive.md", "text"): 1,  # a tree of files
    ("docs/guides/archive.md", "sql"): 4,  # `tests/archive/test_recipe.py` runs them on an archive
    ("docs/guides/archive.md", "sh"): 1,  # nothing is archived before the retention is over
    ("docs/operations/dynamodb.md", "sh"): 1,  # needs an account of Amazon's
    ("docs/operations/object-storage.md", "sh"): 1,  # needs a bucket
    ("docs/operations/object-storage.md", "json"): 1,  # a policy for IAM
    ("docs/operations/sqs.md", "sh"): 1,  # needs an account of Amazon's
    ("docs/operations/sqs.md", "json"): 1,  # a policy for IAM, which `tests/queues/sqs` compares with the calls
    ("docs/guides/serverless.md", "sh"): 1,  # the settings of a function in Lambda
    ("docs/guides/django.md", "sh"): 1,  # `pip install`
    ("docs/guides/from-apscheduler.md", "python"): 1,  # APScheduler, for comparison
    ("docs/guides/from-celery.md", "python"): 1,  # Celery, for comparison
    ("docs/guides/from-cron.md", "crontab"): 1,
    ("docs/tutorial.md", "sh"): 1,  # `make dev`, as in the README
}


@pytest.mark.parametrize("page", PLAYED, ids=name_of)
def test_the_snippets_of_a_page_run_as_printed(page: Path, tmp_path: Path) -> None:
    with opened_stage(tmp_path) as stage:
        for block in blocks_of(page):
            stage.play(block)


def test_what_is_not_run_is_known() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language not in PICTURES]
    assert Counter((block.page, block.language) for block in blocks if not block.is_run) == UNRUN
