"""How a job fares: its objects and pods, why one waits or failed, its end, its logs."""
