"""What these charts raise on bad input: one sentence that names the setting, what was found and what is allowed."""


class JobError(ValueError):
    """job.yaml, or a file it needs, cannot become manifests. `str()` is the sentence a user reads."""
