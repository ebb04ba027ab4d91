"""The functions that Lambda calls, with its event and its context."""

from datetime import timedelta
from typing import Any, Protocol

from horae.adapters import sqs_messages
from horae.aws.environment import Environment
from horae.aws.planner import plan_once
from horae.aws.worker import work_off

SPARE = timedelta(seconds=5)  # of a function's time, to write results and give back what is left


class LambdaContext(Protocol):
    """What Lambda says of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how much of the function's time is left."""


def worker_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Run the tickets of an SQS event, and name the messages that must come again."""
    messages = sqs_messages(event)
    environment = Environment.of_this_process(role="worker")
    again = environment.run(work_off(environment, messages, within=_time_left(context)))
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in again]}


def planner_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Plan ahead and clean up once; for a schedule of EventBridge, whose event says nothing that matters."""
    environment = Environment.of_this_process(role="planner")
    return environment.run(plan_once(environment, within=_time_left(context)))


def _time_left(context: LambdaContext) -> timedelta:
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    return left - min(SPARE, left / 4)
