"""A job's manifests, run as process trees on this machine: each pod has a loopback address and a folder of its own."""
