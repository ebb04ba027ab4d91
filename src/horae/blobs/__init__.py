"""Adapters of the blob port that are not part of a store."""
