"""A Kubernetes cluster of your own on EC2, by k3s. bootstrap/ has what its machines run."""
