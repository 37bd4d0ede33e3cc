"""Builds images and environments for jobs. `make image` calls `image`."""
