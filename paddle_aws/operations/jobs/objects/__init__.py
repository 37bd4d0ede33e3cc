"""What the cluster says of a job: its objects, and the phase and state of its pods."""
