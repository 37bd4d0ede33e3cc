"""One agent a pod: it follows the rendezvous, supervises the worker group, and knows no program. `__main__` starts it."""
