"""Rehearses a cluster's whole life and a job's pods on one machine, without an AWS account."""
