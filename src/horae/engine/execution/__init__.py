"""Runs one attempt of a task: on the event loop, in a thread or in a child process."""
