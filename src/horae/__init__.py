"""Horae runs jobs on time, at least once, and can prove it afterwards."""

__version__ = "0.1.0"
