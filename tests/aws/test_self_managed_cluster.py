"""A self-managed cluster: what the rows of templates.yaml do not cover."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.k3s_cluster import release
from paddle_settings.errors import SettingError

from .built import build


@pytest.fixture(scope="module")
def self_managed(variant: Any) -> Any:
    return variant("self-managed-cluster")


def test_files_of_any_size_are_neither_hashed_nor_copied_at_synth(self_managed: Any) -> None:
    folder = Path(self_managed.assembly.directory)
    assert [path.name for path in folder.iterdir() if path.name.startswith("asset.")] == []
    manifest = json.loads((folder / "tutorial-cluster.assets.json").read_text())
    paths = [Path(file["source"]["path"]) for file in manifest["files"].values()]
    assert {path.name for path in paths if path.is_absolute()} > {
        "k3s",
        "control-plane.sh",
        "efs-csi-driver.yaml",
    }


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"distribution": {"lock": "none.json"}},
            r"none\.json is missing: .* run `paddle-aws lock distribution`",
        ),
        ({"version": "1.34"}, r'version is "1\.34", but'),
    ],
)
def test_without_its_lock_one_sentence_names_the_command(
    self_managed: Any, settings: dict[str, Any], sentence: str
) -> None:
    cluster = self_managed.spec.cluster.model_dump(include={"kind", "distribution"})
    with pytest.raises(SettingError, match=sentence):
        release(ClusterSpec.model_validate({"retain": False, "cluster": {**cluster, **settings}}))
    fitting = ClusterSpec.model_validate(
        {"retain": False, "cluster": {**cluster, "version": "1.35"}}
    )
    assert release(fitting).version == "v1.35.0+k3s0"


def test_more_labels_than_a_machines_user_data_holds(self_managed: Any) -> None:
    cluster = self_managed.spec.cluster.model_dump(include={"kind", "distribution"}) | {
        "elastic_ip": True,
        "administrators": [],
    }
    labels = {f"label-{number}": "x" * 60 for number in range(200)}
    spec = ClusterSpec.model_validate(
        {"retain": False, "cluster": cluster, "nodes": {"w": {"labels": labels}}}
    )
    with pytest.raises(
        SettingError,
        match=r"^nodes\.w: the machine's user data has [\d,]{6} characters, at most 15,500 are",
    ):
        build(App(), spec)
