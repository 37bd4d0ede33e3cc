"""AWS: what the account holds and costs, buckets, and what is applied to a cluster once."""
