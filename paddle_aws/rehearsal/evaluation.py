"""Measures the trained model's metric on held-out records, with the same Job as on a cluster.

`python -m paddle_aws.rehearsal.evaluation`, which `paddle-aws evaluate` starts with a job's name,
measures the model of the last rehearsal of that job.
"""

import sys
from pathlib import Path
from typing import Any

from k8s_charts.kinds import evaluation
from k8s_charts.names import COMPONENT
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.jobs import rehearsal_backend
from paddle_aws.operations.jobs.evaluation import Evaluation
from paddle_aws.rehearsal import interruption
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.pods import manifests
from paddle_aws.rehearsal.pods.addresses import AddressBlock
from paddle_aws.rehearsal.pods.job import last_lines, run_job
from paddle_aws.rehearsal.pods.pod import Host

_PROJECT = Path(__file__).resolve().parents[2]


async def evaluate(
    documents: list[dict[str, Any]], host: Host, addresses: AddressBlock
) -> tuple[Evaluation, str]:
    """Measures the last complete pass of the training Job in `documents`. Returns the result and
    the process's output, as JSON.

    Raises Failed with the last lines of the process's output.
    """
    jobs = [document for document in documents if document["kind"] == "Job"]
    training = next(
        (job for job in jobs if job["metadata"]["labels"][COMPONENT] == "trainer"), None
    )
    if training is None:
        raise BadInput("the rehearsal was of a PaddleJob: its program measures itself")
    evaluation_job = evaluation.evaluation_job(training, f"{training['metadata']['name']}-evaluate")
    job = manifests.read([*documents, evaluation_job]).jobs[-1]
    result = await run_job(job, host, addresses)
    log = result.ended[-1].logs[job.template.containers[0].name]
    if not result.succeeded:
        raise Failed(f"the trained model could not be measured\n{last_lines(log)}")
    text = log.read_text()
    return Evaluation.parse(text), text


def main() -> None:
    """Measures the model of a job that was rehearsed here and prints the result."""
    with (
        cli_errors(),
        interruption.catch_signals(),
        RehearsalFolder(rehearsal_backend.FOLDER.absolute()) as folder,
        AddressBlock() as addresses,
    ):
        job = rehearsal_backend.load(folder.path, *sys.argv[1:])
        documents = manifests.load(sorted(job.manifests.glob("*.yaml")))
        record = job.record
        host = folder.host(_PROJECT, manifests.read(documents), Path(record.interpreter))
        sys.stdout.write(interruption.run(evaluate(documents, host, addresses))[1])
        folder.tidy()


if __name__ == "__main__":
    main()
