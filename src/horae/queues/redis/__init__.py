"""The queue on Redis or Valkey."""
