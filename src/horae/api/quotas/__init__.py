"""Quotas: how much each owner keeps in the store, about, and what may still be added."""
