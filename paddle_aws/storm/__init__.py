"""A storm: faults at a job's events, on this machine, and a verdict on how its program handled
them.
"""
