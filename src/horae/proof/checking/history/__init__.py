"""Recorded histories: how they are written, read and judged as a whole."""
