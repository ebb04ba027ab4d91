"""Logs of attempts."""
