"""One agent per pod: follows the rendezvous server, supervises the worker group, and knows no
program. `__main__` starts it.
"""
