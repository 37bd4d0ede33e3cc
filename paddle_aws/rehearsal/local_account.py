"""Replaces the account in a rehearsal without a deploy: manifests with placeholders or, if
outputs.json exists, for the deployed cluster. There is no bucket: the data job reads links on the
volume to the files that would be its objects.
"""

import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from k8s_charts import documents
from k8s_charts.deployed import PLACEHOLDER, ClusterOutputs, choose_image
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.early_checks import check_deployed
from paddle_aws.rehearsal.account import Account, proxy_settings
from paddle_aws.rehearsal.folder import RehearsalFolder
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

    def write_manifests(self, folder: RehearsalFolder) -> list[Path]:
        folder.manifests.mkdir()
        return documents.write(self._job, self._outputs, self._image, folder.manifests)

    def upload(self, file: Path, address: str, links: Path) -> Path:
        """Links the files that the address means as S3 does: one object, those below a prefix, or
        those that match a pattern with `*`.
        """
        _, _, key = address.removeprefix("s3://").partition("/")
        prefix, star, _ = key.partition("*")
        base, _, name = prefix.rpartition("/")
        shutil.rmtree(links, ignore_errors=True)
        single = file.is_file() and not star and name != ""
        files = [file] if file.is_file() else [path for path in file.rglob("*") if path.is_file()]
        top = file.parent if file.is_file() else file
        links.mkdir(parents=True)
        for path in files:
            below = name if single else path.relative_to(top).as_posix()
            if not star or fnmatchcase(f"{base}/{below}".lstrip("/"), key):
                (links / below).parent.mkdir(parents=True, exist_ok=True)
                (links / below).symlink_to(path)
        return links / name if single else links

    def identity(self, namespace: str, account: str) -> Mapping[str, str]:
        # On a machine in AWS, a program must not find the machine's own identity.
        return proxy_settings() | {"AWS_EC2_METADATA_DISABLED": "true"}
