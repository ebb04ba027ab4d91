"""The shell around the core: reads, asks for a decision, writes in batches."""
