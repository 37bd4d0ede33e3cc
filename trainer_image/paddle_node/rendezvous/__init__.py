"""The rendezvous of a job's agents: which agents are there, which attempt runs, when it ends. Rank
0's pod, found by discovery, serves it.
"""
