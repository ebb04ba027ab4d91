"""Adapters of the blob port."""
