"""Where the agents of a job meet: who is there, which attempt runs, when it ends. Rank 0's pod,
found by discovery, serves it.
"""
