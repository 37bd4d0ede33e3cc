"""A training job: what to submit and how it runs, on a cluster or in a rehearsal. `paddle_aws` uses
`run`.
"""
