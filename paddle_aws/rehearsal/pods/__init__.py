"""Runs a job's manifests as process trees on this machine: each pod has its own loopback address
and folder.
"""
