"""A storm: faults at a job's own events, on this machine, and a verdict on how its program bore
them.
"""
