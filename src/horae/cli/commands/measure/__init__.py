"""Commands that measure what Horae does here, and reckon what it needs and costs."""
