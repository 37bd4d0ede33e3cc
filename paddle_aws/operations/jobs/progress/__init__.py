"""What a job has learned so far: steps, passes, metrics."""
