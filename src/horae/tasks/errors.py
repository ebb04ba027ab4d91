"""The base of failures that built-in tasks raise."""


class TaskFailure(Exception):
    """A failure whose message is enough, so its traceback is not logged."""
