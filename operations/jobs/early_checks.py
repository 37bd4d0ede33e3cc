"""Finds a job's faults before anything is deployed, uploaded or sent: in its local data and its
nodes.
"""

import io
from collections.abc import Callable
from pathlib import Path

from paddle_node.data import doubts
from paddle_node.data.sources import unpack
from paddle_node.data.sources.local_source import LocalSource
from paddle_node.failure import Failure

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.value_types import amount
from operations.errors import BadInput
from settings.addresses import without_secrets
from stacks.cluster_spec import ClusterSpec, most_vcpus

HEAD = 1 << 20
"""Bytes of the data to check."""


def check_data(job: TrainingJob, job_file: Path, say: Callable[[str], None]) -> Path | None:
    """Returns the local data file, after checking it; None if the job has none, as its data job
    reads another place.

    Raises BadInput. Reports what is merely doubtful about the first lines.
    """
    if job.data is None or job.local_file is None:
        return None
    file = job_file.parent / job.local_file
    named = f"data.source is {without_secrets(str(job.data.source))}"
    if not file.is_file():
        raise BadInput(
            f"{named}: there is no file {without_secrets(str(file))}; give a file, s3:// or "
            "https://"
        )
    if job.data.format != "lines" or job.data.shared:
        return file
    try:
        source = LocalSource(str(file.resolve()), {})
        members = unpack.members(source, source.objects()[0], "lines")
        head = next((content.read(HEAD) for _, content in members), b"")
    except Failure as failure:
        raise BadInput(f"{named}: {failure.sentence}") from None
    if not head:
        raise BadInput(f"{named}: it is empty")
    if b"\0" in head:
        raise BadInput(
            f"{named} and data.format is lines: its first records are not text; use files, or "
            "module:function"
        )
    if job.command is None:
        # The last line may be cut off.
        for doubt in doubts.of_lines(
            io.BytesIO(head[: head.rfind(b"\n") + 1]).readlines(), file.name
        ):
            say(f"warning: {doubt}")
    return file


def check_nodes(job: TrainingJob, cluster: ClusterSpec) -> None:
    """Raises BadInput for a pod that fits on no node of the cluster, as far as the names of machine
    types tell.
    """
    types = [kind for group in cluster.nodes.values() for kind in group.instance_types]
    vcpus = [most_vcpus(kind) for kind in types]
    if cluster.cluster.existing or None in vcpus:
        return
    most = max(filter(None, vcpus))
    for setting, resources in (
        ("resources", job.resources),
        ("data_resources", job.data_resources),
    ):
        if amount(resources.cpu) > most:
            raise BadInput(
                f"{setting}.cpu is {resources.cpu}: the nodes of {', '.join(types)} have at most "
                f"{most} vCPUs"
            )


def check_host_path(job: TrainingJob, outputs: ClusterOutputs) -> None:
    """Raises BadInput for a folder of the nodes where the deployed cluster's mount nothing: each
    pod would see a folder of its own.
    """
    path, mounts = job.volume.path, outputs.file_system_mounts
    if job.volume.kind != "host-path" or path is None or not mounts or outputs.mount_of(path):
        return
    elsewhere = "" if mounts == "none" else f" (but at {mounts.replace(',', ', ')})"
    raise BadInput(
        f"volume.path is {path}: no node of the deployed cluster mounts the file system there"
        f"{elsewhere}; set nodes.<group>.mount_file_system to it in cluster.yaml and deploy, or "
        "use volume.kind efs, or claim for a volume of yours"
    )


def check_deployed(job: TrainingJob, outputs_file: Path) -> None:
    """Runs `check_nodes` if the cluster is cluster.yaml's: that one is deployed, or its file system
    is the job's.
    """
    cluster_file = outputs_file.with_name("cluster.yaml")
    if cluster_file.exists() and (job.volume.kind == "efs" or outputs_file.exists()):
        check_nodes(job, ClusterSpec.load(cluster_file))
