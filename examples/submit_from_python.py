"""Trains as a script or a scheduler's task would: `python submit_from_python.py job.yaml model`.

Exit code 75 where another try may help (the cluster does not answer), 1 for any other failure.
"""

import logging
import os
import sys

import paddle_aws


def main(job_file: str, folder: str) -> None:
    run = paddle_aws.submit(job_file)
    try:
        run.wait(timeout=12 * 3600)
    except paddle_aws.TimedOut:
        run.cancel()
        raise
    for one in run.results():
        print(f"pass {one.number}: loss {one.loss:.4f}, {one.records:,} records in {one.seconds:.0f} s")
    print(f"the model is in {run.model(folder)}")


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    try:
        main(*sys.argv[1:])
    except paddle_aws.Unreachable as error:
        print(error, file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except paddle_aws.Error as error:
        sys.exit(str(error))
