"""Schedules: parsing, evaluating, describing and previewing them."""
