"""What people do with jobs: create, update, pause, cancel, backfill, requeue."""
