"""What `cdk8s synth` runs: the job file's documents, written to the folder that cdk8s names.

`cdk8s synth` takes job.yaml; another file: `cdk8s synth --app "python -m k8s_charts other.yaml"`.
"""

import os
import sys
from pathlib import Path

from k8s_charts import documents
from k8s_charts.deployed import Deployed
from k8s_charts.spec import TrainingJob
from settings.errors import SettingError


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 2 with one sentence on stderr."""
    path = Path(arguments[0] if arguments else "job.yaml")
    try:
        job = TrainingJob.load(path)
        deployed = Deployed.load(job, Path("outputs.json"), Path("image.json"))
    except SettingError as error:
        print(error, file=sys.stderr)
        return 2
    if deployed.missing:
        print(f"{deployed.missing}: the manifests hold placeholders", file=sys.stderr)
    documents.write(job, deployed.outputs, deployed.image, Path(os.environ.get("CDK8S_OUTDIR", "dist")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
