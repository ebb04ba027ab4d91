"""Shows that the promises hold: the checker and the benchmark."""
