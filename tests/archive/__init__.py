"""The archive of ended runs."""
