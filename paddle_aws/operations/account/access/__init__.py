"""The ways into a cluster: its kubeconfig entry, and the tunnel to a private endpoint."""
