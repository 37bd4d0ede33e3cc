"""What the pods of all kinds share: container and security, the job's folder, where they run, whom
they may reach.
"""
