"""Tasks: named code that can be run, the built-in ones among them."""
