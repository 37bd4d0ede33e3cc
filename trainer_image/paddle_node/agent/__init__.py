"""One agent a pod, a rendezvous server in the pod of trainer 0, and the workers of an attempt. It knows no program."""
