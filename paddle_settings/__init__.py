"""Readers of the files that users provide. Stacks, charts and commands import them, never the
reverse.
"""
