"""Prepares a pod: its shard and the user's program. The agent calls `preparation.prepare`."""
