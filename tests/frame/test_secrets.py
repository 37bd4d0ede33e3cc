"""An address may hold a secret: no sentence repeats its user, its password or its query."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.account.bucket_upload import parse_object
from paddle_aws.operations.account.download import content
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.rehearsal.deployed_account import DeployedAccount
from paddle_aws.rehearsal.rehearse import Rehearsal
from paddle_settings.addresses import hide_secrets
from paddle_settings.errors import SettingError

TABLE = yaml.safe_load(Path(__file__).with_name("secrets.yaml").read_text())


def put(settings: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    inner = settings.get(first)
    return {
        **settings,
        first: put(inner if isinstance(inner, dict) else {}, rest, value) if rest else value,
    }


@pytest.mark.parametrize("address", TABLE["addresses"])
def test_no_sentence_repeats_a_secret_of_an_address(address: str, tmp_path: Path) -> None:
    job = {"name": "words", "trainers": 3, "data": {"source": "s3://corpus/words"}}
    jobs = [put(job, setting, address) for setting in TABLE["job"]]
    jobs += [job | {address: 1}, put(put(job, "data.prepared", True), "data.source", address)]
    clusters = [put({"retain": False}, setting, [address]) for setting in TABLE["cluster"]]
    sentences = [refusal(job, {"retain": False}, tmp_path) for job in jobs]
    sentences += [
        refusal(job, cluster, tmp_path) for cluster in [*clusters, {"retain": False, address: 1}]
    ]
    assert [sentence for sentence in sentences if "SECRET" in sentence] == []


def refusal(job: dict[str, Any], cluster: dict[str, Any], folder: Path) -> str:
    """Returns what a command says about these files. What it does not take for an address is a
    local file, which is missing.
    """
    for name, settings in (("job.yaml", job), ("cluster.yaml", cluster)):
        (folder / name).write_text(yaml.safe_dump(settings))
    try:
        job_file = folder / "job.yaml"
        loaded = TrainingJob.load(job_file)
        Rehearsal(
            folder,
            loaded,
            job_file,
            DeployedAccount(folder, folder / "cluster.yaml", JobSource(job_file), loaded),
        )
    except (SettingError, BadInput) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("address", TABLE["addresses"])
def test_no_command_repeats_a_secret_of_its_argument(address: str) -> None:
    for reader in (parse_object, content):
        if reader is content or not address.startswith("s3:"):
            with pytest.raises(BadInput) as bad:
                reader(address.replace("https", "http"))
            assert "SECRET" not in str(bad.value)


def test_the_manifest_has_the_query_that_its_source_needs() -> None:
    job = TrainingJob.parse(
        {"name": "words", "trainers": 3, "data": {"source": "https://host/f?set=A"}}
    )
    manifests = str(documents(job, ClusterOutputs.placeholder(), "image"))
    assert manifests.count("https://host/f?set=A") == 1


@pytest.mark.parametrize(("address", "shown"), TABLE["shown"])
def test_what_is_no_secret_is_shown(address: str, shown: str) -> None:
    assert hide_secrets(address) == shown
