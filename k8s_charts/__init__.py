"""A validated TrainingJob becomes Kubernetes documents; nothing here asks a cluster or an account anything."""
