"""The archive: ended runs as compressed NDJSON, by the day on which they ended."""
