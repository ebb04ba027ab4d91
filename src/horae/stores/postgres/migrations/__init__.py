"""The migrations of PostgreSQL, and what applies them."""
