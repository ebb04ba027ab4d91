"""The use cases that change jobs: create, update, pause, cancel, backfill, requeue."""
