"""The queue port on Amazon SQS."""
