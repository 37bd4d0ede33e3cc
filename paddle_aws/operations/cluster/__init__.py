"""The Kubernetes API, and nothing of a job."""
