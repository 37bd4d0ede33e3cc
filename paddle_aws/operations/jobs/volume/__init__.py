"""Reads and writes a job's volume through an inspection pod."""
