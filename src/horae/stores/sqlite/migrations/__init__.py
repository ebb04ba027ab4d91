"""The migrations of SQLite, and what applies them."""
