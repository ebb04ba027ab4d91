"""The way of a request to its route, and of an answer back."""
