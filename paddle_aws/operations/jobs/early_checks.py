"""Finds a job's faults before anything is deployed, uploaded or sent: in its local data, its
namespace and its nodes.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_node import command_line

from k8s_charts.deployed import ClusterOutputs, check_namespace
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.value_types import amount
from paddle_aws.operations.errors import BadInput
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster, most_vcpus
from paddle_settings.addresses import hide_secrets

_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.I)


def check_data(job: TrainingJob, job_file: Path, say: Callable[[str], None]) -> Path | None:
    """Returns the local data file, after checking it; None if the job has none, as its data job
    reads another place.

    Raises BadInput. Warns of first lines that are doubtful.
    """
    if job.data is None or job.local_file is None:
        return None
    file = job_file.parent / job.local_file
    setting = f"{job_file.name}: data.source is {hide_secrets(str(job.data.source))}"
    _refuse_no_file(setting, file, "give a file")
    if job.data.format != "lines" or job.data.shared:
        return file
    beginning = _read_as_the_data_job(file.resolve(), int(job.data.header))
    if beginning["refusal"]:
        raise BadInput(f"{setting}: {beginning['refusal']}")
    if not beginning["bytes"]:
        raise BadInput(f"{setting}: it is empty")
    if not beginning["text"]:
        raise BadInput(
            f"{setting} and data.format is lines: its first records are not text; use files, or "
            "module:function"
        )
    if beginning["mark"]:
        say(f"warning: {beginning['mark']}")
    if job.command is None:
        for doubt in beginning["doubts"]:
            say(f"warning: {doubt}")
    return file


def _refuse_no_file(setting: str, file: Path, remedy: str) -> None:
    """Raises BadInput, which begins with `setting`, unless `file` is a regular file."""
    if file.is_dir():
        words = shlex.join(["tar", "-cf", f"{file.name}.tar", "-C", str(file), "."])
        raise BadInput(
            f"{setting}: that is a folder; pack it (`{words}`) and name the .tar, which is "
            "unpacked, or use s3://"
        )
    if not file.is_file():
        fault = "that is no regular file" if file.exists() else f"there is no file {file}"
        raise BadInput(f"{setting}: {hide_secrets(fault)}; {remedy}, s3:// or https://")


def _read_as_the_data_job(file: Path, header: int) -> dict[str, Any]:
    """Returns what `paddle_node.data.first_lines` prints about a file."""
    words = [sys.executable, "-P", "-m", "paddle_node.data.first_lines", str(file), str(header)]
    environment = {**os.environ, "PYTHONPATH": str(Path(command_line.__file__).parents[1])}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def check_inputs(job: TrainingJob, job_file: Path) -> dict[str, Path]:
    """Returns the local files among the inputs, by name. Raises BadInput for a missing one."""
    files = {name: job_file.parent / file for name, file in job.input_files.items()}
    for name, file in files.items():
        setting = f"{job_file.name}: inputs.{name} is {job.inputs[name]}"
        _refuse_no_file(setting, file, "give a file (a folder as a .tar)")
    return files


def tell_risks(job: TrainingJob, say: Callable[[str], None]) -> None:
    """Warns of a namespace without restricted pod security, which holds for all its pods, and of
    secrets in the settings: all who may read ConfigMaps and Jobs see them.
    """
    if (level := job.pod_security_level) != "restricted":
        risk = "take over their nodes" if level == "privileged" else "run as root"
        say(
            f"warning: namespace {job.namespace} gets {level} pod security instead of restricted: "
            f"pods of anybody who may create pods there can {risk}"
        )
    if names := [name for name in job.environment if _SECRET.search(name)]:
        say(
            f"warning: environment has {', '.join(names)}, which readers of the namespace see; "
            "put secrets into a Secret, and name it under environment_from"
        )
    for line in job.program.requirements:
        if (shown := hide_secrets(line)) != line:
            say(
                f"warning: program.requirements has {shown} with a password, which readers of the "
                "namespace see; use program.index with a secret"
            )


def tell_recipe(job: TrainingJob, say: Callable[[str], None]) -> None:
    """Says which recipe the job's settings are from, and why, if there is one."""
    if job.applied_recipe is not None:
        say(job.applied_recipe.sentence)


def tell_program(job: TrainingJob, say: Callable[[str], None]) -> None:
    """Says what of the program's folder goes to the pods, and what stays here and why."""
    if job.program.archive is not None:
        say(job.program.archive.describe())


def check_cluster(job: TrainingJob, cluster: ClusterSpec) -> None:
    """Raises BadInput or SettingError for a job that the cluster of these settings cannot run, as
    far as they tell.
    """
    if not cluster.cluster.self_managed:
        served = {"jobs_namespace": cluster.jobs.namespace}
        check_namespace(job, ClusterOutputs.placeholder().model_copy(update=served))
    check_nodes(job, cluster)


def check_nodes(job: TrainingJob, cluster: ClusterSpec) -> None:
    """Raises BadInput for a pod that fits on no node of the cluster, as far as the names of machine
    types tell.
    """
    if cluster.cluster.existing:
        return
    groups = cluster.nodes.values()
    if job.gpus.count and not any(group.gpu for group in groups):
        raise BadInput(
            f"gpus.count is {job.gpus.count}: no group under `nodes` of cluster.yaml has `gpu: "
            "true`, so each pod would wait; add one and deploy, or leave gpus out"
        )
    types = [kind for group in groups for kind in group.instance_types]
    vcpus = [most_vcpus(kind) for kind in types]
    if None in vcpus:
        return
    most = max(filter(None, vcpus))
    pods = {"resources": job.resources, "data_resources": job.data_resources}
    for setting, resources in pods.items():
        if amount(resources.cpu) > most:
            raise BadInput(
                f"{setting}.cpu is {resources.cpu}: the nodes of {', '.join(types)} have at most "
                f"{most} vCPUs"
            )


def check_host_path(job: TrainingJob, outputs: ClusterOutputs) -> None:
    """Raises BadInput for a folder in which the deployed cluster's nodes mount nothing: each pod
    would see another folder.
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
    """Checks the job against cluster.yaml if its cluster is that one: it is deployed, or the job
    takes its file system or its bucket.
    """
    cluster_file = outputs_file.with_name("cluster.yaml")
    uploads = job.local_file is not None or job.input_files
    takes = job.volume.kind == "efs" or bool(job.reads_bucket and uploads)
    if cluster_file.exists() and outputs_file.exists():
        # The manifests know the served namespace from the outputs; cluster.yaml may be newer.
        check_nodes(job, load_cluster(cluster_file))
    elif cluster_file.exists() and takes:
        check_cluster(job, load_cluster(cluster_file))
