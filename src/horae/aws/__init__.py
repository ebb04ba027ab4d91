"""Horae inside AWS Lambda: name `horae.aws.planner_handler` or `horae.aws.worker_handler` as a function's handler."""

from horae.aws.handlers import planner_handler, worker_handler

__all__ = ["planner_handler", "worker_handler"]
