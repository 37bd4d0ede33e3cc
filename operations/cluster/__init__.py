"""The Kubernetes API: objects, watches, logs, and the pod through which a volume is read and written."""
