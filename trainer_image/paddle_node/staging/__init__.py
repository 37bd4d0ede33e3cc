"""What a pod needs before it is ready: its shard and the user's program. The agent calls
`preparation`.
"""
