"""One agent a pod: it finds rank 0, starts and supervises the worker group, and knows no program. `__main__` starts it."""
