"""Words for people: what is wrong with a value, what was meant, and what is safe to show."""
