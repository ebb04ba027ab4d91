"""A function in a process of its own: an event on its input, the answer on its output."""

import json
import sys

from horae.aws import worker_handler
from horae.aws.environment import Environment
from tests.aws.conftest import Context

if __name__ == "__main__":
    json.dump(worker_handler(json.load(sys.stdin), Context(60)), sys.stdout)
    Environment.close_all()
