"""How often agents and the rendezvous server show each other that they live, and when a silent one
counts as lost.
"""

INTERVAL = 1.0
"""Seconds between two messages of a live connection, in both directions."""
LOST_AFTER = 6.0
"""Seconds without a message after which the other side counts as lost. A closed connection is lost
at once.
"""
