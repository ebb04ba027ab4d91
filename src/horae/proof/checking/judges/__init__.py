"""Judges of a recorded history, one per invariant."""
