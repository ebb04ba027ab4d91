"""Tasks: named functions that workers run, including the built-in ones."""
