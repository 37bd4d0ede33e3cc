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
for one in run.results():
    print(f"pass {one.number}: loss {one.loss:.4f}, {one.records:,} records in {one.seconds:.0f} s")
print(f"the model is in {run.model(sys.argv[2])}")
