"""What becomes of jobs and runs, as pure functions of values: planning, release, results, retries, fairness."""
