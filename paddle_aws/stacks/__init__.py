"""The deployable stacks, and cluster.yaml, which describes them."""
