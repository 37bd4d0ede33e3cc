"""What `cdk8s synth` runs: the job file's documents, written to the folder that cdk8s names.

`cdk8s synth` takes job.yaml; another file: `cdk8s synth --app "python -m k8s_charts other.yaml"`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from k8s_charts import documents, image
from k8s_charts.errors import JobError
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 2 with one sentence on stderr."""
    path = Path(arguments[0] if arguments else "job.yaml")
    try:
        job = TrainingJob.load(path)
        outputs = ClusterOutputs.load_or_placeholder(Path("outputs.json"))
        chosen = image.choose(job, outputs, Path("image.json"))
    except JobError as error:
        print(error, file=sys.stderr)
        return 2
    if outputs.placeholders:
        print(
            "outputs.json does not exist: the manifests hold placeholders for the file system, bucket and image", file=sys.stderr
        )
    documents.write(job, outputs, chosen, Path(os.environ.get("CDK8S_OUTDIR", "dist")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
