"""Adapters of the store port: rows in, rows out."""
