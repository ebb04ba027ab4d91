"""Runs attempts of tasks: on the event loop, in threads or in child processes."""
