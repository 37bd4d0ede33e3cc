"""Readers of the files that users provide. Stacks, charts and commands use them; they know none of
these.
"""
