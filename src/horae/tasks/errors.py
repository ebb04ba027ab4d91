"""Failures of the built-in tasks, which explain themselves."""


class TaskFailure(Exception):
    """A failure whose message says all: its traceback would tell a user nothing."""
