"""How a job fares: a view of it, why it waits, its end, its logs."""
