"""A self-managed Kubernetes cluster on EC2, with k3s. bootstrap/ holds what its machines run."""
