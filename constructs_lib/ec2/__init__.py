"""What EC2 machines of either kind of cluster have in common."""
