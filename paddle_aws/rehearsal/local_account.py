"""Replaces the account in a rehearsal without a deploy: a bucket that serves local files, and
manifests with placeholders or, if outputs.json exists, for the deployed cluster.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from k8s_charts import documents
from k8s_charts.deployed import PLACEHOLDER, ClusterOutputs, choose_image
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.early_checks import check_deployed
from paddle_aws.rehearsal.account import Account, proxy_settings
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.inventory import Resource
from paddle_aws.rehearsal.local_bucket import LocalBucket
from paddle_aws.rehearsal.screen import Screen
from paddle_settings.errors import SettingError


class LocalAccount(Account):
    """The account of a rehearsal that deploys nothing."""

    def __init__(self, job: TrainingJob, outputs: Path, image_file: Path) -> None:
        """`outputs` and `image_file` need not exist. Raises SettingError for invalid ones."""
        self._job = job
        check_deployed(job, outputs)
        deployed = outputs.exists()
        self._outputs = ClusterOutputs.load(outputs) if deployed else ClusterOutputs.placeholder()
        try:
            self._image = choose_image(job, self._outputs, image_file)
        except SettingError:
            # The pods run this clone's files, whatever the cluster's image is.
            self._image = PLACEHOLDER
        self.image = PLACEHOLDER if self._image == job.image else self._image
        self._life = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._life.close()

    def deploy(self, folder: RehearsalFolder, screen: Screen) -> None:
        self._bucket = self._life.enter_context(LocalBucket())

    def write_manifests(self, folder: RehearsalFolder) -> list[Path]:
        folder.manifests.mkdir()
        return documents.write(self._job, self._outputs, self._image, folder.manifests)

    def upload(self, file: Path, address: str) -> None:
        self._bucket.serve(file, address)

    def identity(self, namespace: str, account: str) -> Mapping[str, str]:
        return proxy_settings() | self._bucket.environment

    def destroy(self, screen: Screen) -> tuple[Resource, ...]:
        return ()
