"""A trainer's work in Paddle: with parameter servers, or with a whole model in each trainer. The
passes use it via `backend`.
"""
