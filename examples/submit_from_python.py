"""Trains as a script or a scheduler's task would: `python submit_from_python.py job.yaml
results`.
"""

import logging
import sys

import paddle_aws

logging.basicConfig(format="%(message)s", level=logging.INFO)
run = paddle_aws.submit(sys.argv[1])
try:
    run.wait(timeout=12 * 3600)
except paddle_aws.TimedOut:
    run.cancel()
    raise
for result in run.results():
    print(
        f"pass {result.number}: loss {result.loss:.4f}, {result.records:,} records in "
        f"{result.seconds:.0f} s"
    )
print(f"the model is in {run.model(sys.argv[2])}")
