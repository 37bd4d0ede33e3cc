"""The state of a job: a view of it, why it waits, its end, its logs."""
