"""What the EC2 machines of both kinds of cluster have in common."""
