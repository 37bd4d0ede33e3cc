"""The environment Job: builds a program's requirements once into an archive on the volume, which
the job's pods unpack.

Code of package authors runs in it, so its pod has no rights: no token, an account without AWS
rights, one folder of the volume, and a network that reaches only package indexes.
"""

from pathlib import PurePosixPath
from typing import Any

from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.pods import network, pod
from k8s_charts.pods.pod import literal
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.job_settings import ENVIRONMENT_ENDING

_IDENTITY = (Variable.JOB_NAME, Variable.RUN_ID, Variable.JOB_NAMESPACE)


def _environment(job: TrainingJob, outputs: ClusterOutputs, image: str) -> dict[Any, object]:
    program = job.program
    index, identity = program.index, pod.identity(job)
    return {
        # These name the job in the sentence that says why the build failed.
        **{name: identity[name] for name in _IDENTITY},
        Variable.JOB_PATH: literal(job.volume.mount_path),
        Variable.RETRIES: job.limits.retries,
        Variable.ENVIRONMENT: names.environment(job, image),
        Variable.WHEELS: literal(program.wheels) if program.wheels is not None else None,
        # pip's own variables; a Secret's address has the password.
        "PIP_INDEX_URL": literal(index.url) if index is not None and not index.secret else None,
        "PIP_ONLY_BINARY": ":all:" if index is not None and index.secret else None,
        **outputs.proxy_variables,
    }


class EnvironmentChart(pod.PodChart):
    """Job, ConfigMap and NetworkPolicy of the environment of a job that builds one."""

    ending = ENVIRONMENT_ENDING
    role = "environment"

    def _add_objects(self) -> None:
        job, index = self._job, self._job.program.index
        network.add_environment_policy(self, job, self._outputs)
        place = PurePosixPath(contract.REQUIREMENTS)
        lines = self._add_config_map("requirements", {place.name: job.program.requirements_text})
        self._mount_config_map("requirements", str(place.parent), lines)
        self._mount_certificates()
        container = {
            "name": "environment",
            "command": list(contract.BUILD_ENVIRONMENT),
            "env": pod.environment(_environment(job, self._outputs, self._trainer_image)),
            "envFrom": [{"secretRef": {"name": index.secret}}] if index and index.secret else None,
            "workingDir": contract.HOME,
        }
        account = {"serviceAccountName": names.TRAINER_ACCOUNT}
        template = self._template("environment", container, account)
        document = pod.job_document(job, template, 1, indexed=False)
        self._add_job(document, stem=f"{job.name}{ENVIRONMENT_ENDING}")
