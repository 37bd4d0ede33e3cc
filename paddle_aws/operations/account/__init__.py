"""AWS: what the account holds and allows, buckets, and the ways into a cluster."""
