"""The embedded default: a whole cluster's life and a job's pods, rehearsed on one machine without an AWS account."""
