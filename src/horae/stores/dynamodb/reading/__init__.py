"""The reading half of the DynamoDB store: look-ups, lists, the event log, blobs and retention."""
