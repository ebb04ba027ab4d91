"""What people ask about jobs and runs."""
