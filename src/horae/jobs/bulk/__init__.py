"""Acts on many jobs or runs at once: selected by ids or by a filter, permitted before the first, written in chunks."""
