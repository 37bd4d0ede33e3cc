"""AWS constructs for distributed training: each works alone in anybody's stack."""
