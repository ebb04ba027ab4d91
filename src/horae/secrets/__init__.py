"""Secret parameters: encrypted at rest, and redacted from everything that is shown."""
