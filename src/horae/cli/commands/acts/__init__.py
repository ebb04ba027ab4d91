"""Commands that act on one job or run, or on many that options select."""
