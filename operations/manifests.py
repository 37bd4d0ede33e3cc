"""`paddle-aws manifests`: write what a cluster would get, for reading and for kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from operations.errors import explained


def manifests(
    job_file: Annotated[Path, typer.Argument(metavar="JOB", help="The job's settings.")] = Path("job.yaml"),
    outputs: Annotated[
        Path, typer.Option(help="What `cdk deploy --outputs-file` wrote; placeholders where it does not exist.")
    ] = Path("outputs.json"),
    image_file: Annotated[Path, typer.Option(help="What `make push` wrote; job.yaml's `image` goes before it.")] = Path(
        "image.json"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the manifests, one file a step.")] = Path("dist"),
) -> None:
    """Write a job's Kubernetes manifests, the same bytes as `cdk8s synth`."""
    # Here, not above: cdk8s starts Node, which `paddle-aws --help` need not wait for.
    from k8s_charts import documents, image
    from k8s_charts.outputs import ClusterOutputs
    from k8s_charts.spec import TrainingJob

    with explained():
        job = TrainingJob.load(job_file)
        cluster = ClusterOutputs.load_or_placeholder(outputs)
        chosen = image.choose(job, cluster, image_file)
        written = documents.write(job, cluster, chosen, out)
    for path in written:
        typer.echo(path)
    if cluster.placeholders:
        typer.echo(
            f"{outputs} does not exist: the file system, the bucket and, without an image of yours, the image are placeholders",
            err=True,
        )
