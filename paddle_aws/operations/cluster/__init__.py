"""The Kubernetes API: objects, waiting, logs, and the pod through which a volume is read and
written.
"""
