"""Teams: an IAM group and a role each."""
