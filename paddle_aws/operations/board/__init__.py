"""What `paddle-aws board` serves to a browser on this machine: a job's page, and a list of jobs."""
