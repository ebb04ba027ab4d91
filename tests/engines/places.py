"""Where `make engines` puts the real servers, and which versions of them."""

import os
from pathlib import Path

DYNAMODB_LOCAL = "2.6.1"
ELASTICMQ = "1.7.1"
VERSITYGW = "v1.8.0"


def engines_folder() -> Path:
    """The folder of all servers, outside the repository: `HORAE_ENGINES`, or in the user's cache."""
    if given := os.environ.get("HORAE_ENGINES"):
        return Path(given).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "horae-engines"


def dynamodb_local_folder() -> Path:
    """The classes of DynamoDB Local and of its launcher."""
    return engines_folder() / f"dynamodb-local-{DYNAMODB_LOCAL}"


def elasticmq_folder() -> Path:
    """The classes of ElasticMQ."""
    return engines_folder() / f"elasticmq-{ELASTICMQ}"


def versitygw_program() -> Path:
    """The S3 server."""
    return engines_folder() / f"versitygw-{VERSITYGW}" / "versitygw"


def redis_program() -> Path | None:
    """The machine's own Redis, if it has one."""
    places = [Path(folder) / "redis-server" for folder in os.get_exec_path()]
    return next((place for place in places if os.access(place, os.X_OK)), None)
