"""AWS constructs for distributed training. Each works on its own, in any stack."""
