"""What runs in a training pod: find the peers, stage the data, start pserver and trainer, supervise them.

Imports nothing of CDK or cdk8s. Only the child processes import Paddle, so a pod is up in milliseconds.
"""
