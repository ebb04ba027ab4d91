"""What the SQL stores share: codecs between values and columns, and the loader of statements."""
