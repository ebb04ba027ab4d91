"""Horae runs jobs on time, at least once, and can prove it afterwards."""

from horae.app import Horae
from horae.core.errors import Fatal, RetryAfter
from horae.run import Run
from horae.schedules import cron, every

__all__ = ["Fatal", "Horae", "RetryAfter", "Run", "cron", "every"]

__version__ = "0.1.0"
