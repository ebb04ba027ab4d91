"""Connections to PostgreSQL: addresses, the pool, the types on the wire, the schema and NOTIFY."""
