"""Where a cluster is: VPC, subnets, and the tunnel to a private endpoint."""
