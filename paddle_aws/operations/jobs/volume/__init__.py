"""What lies on a job's volume, read and written through a pod of its own."""
