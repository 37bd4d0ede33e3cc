"""Images and environments that are built for a job. `make image` calls `image`."""
