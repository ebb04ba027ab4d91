"""Schedules: parse, evaluate, describe."""
