"""What a rehearsal without a deploy gives its job in place of an account: the manifests as they are
before a deploy or, where outputs.json lies here, for the deployed cluster; and a bucket that serves
local files.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from k8s_charts import documents
from k8s_charts.deployed import PLACEHOLDER, ClusterOutputs, choose
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.early_checks import check_deployed
from paddle_aws.rehearsal.account import Account, proxy_settings
from paddle_aws.rehearsal.inventory import Resource
from paddle_aws.rehearsal.local_bucket import LocalBucket
from paddle_aws.rehearsal.screen import Screen
from paddle_aws.rehearsal.state import State
from paddle_aws.settings.errors import SettingError


class LocalAccount(Account):
    """No account, for one rehearsal."""

    def __init__(self, job: TrainingJob, outputs: Path, image_file: Path) -> None:
        """`outputs` and `image_file` need not exist. Raises SettingError for invalid ones."""
        self._job = job
        check_deployed(job, outputs)
        there = outputs.exists()
        self._outputs = ClusterOutputs.load(outputs) if there else ClusterOutputs.placeholder()
        try:
            self._image = choose(job, self._outputs, image_file)
        except SettingError:
            # The pods here run this clone's files, whichever image the cluster gets.
            self._image = PLACEHOLDER
        self.image = PLACEHOLDER if self._image == job.image else self._image
        self._life = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._life.close()

    def deploy(self, state: State, screen: Screen) -> None:
        self._bucket = self._life.enter_context(LocalBucket())

    def write_manifests(self, state: State) -> list[Path]:
        state.manifests.mkdir()
        return documents.write(self._job, self._outputs, self._image, state.manifests)

    def upload(self, file: Path, address: str) -> None:
        self._bucket.serve(file, address)

    def identity(self, namespace: str, account: str) -> Mapping[str, str]:
        return proxy_settings() | self._bucket.environment

    def destroy(self, screen: Screen) -> tuple[Resource, ...]:
        return ()
