"""Judges of a recorded history; each module checks one or a few of the invariants I1 to I20."""
