"""The EKS control plane, its add-ons, who reaches it, and its node groups."""
