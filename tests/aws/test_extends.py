"""cluster.yaml that adds to an organization's file, and what that file locks."""

from pathlib import Path

import pytest

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.errors import SettingError

ORG = """
retain: true
owner: platform team
network: {cidr: 10.8.0.0/16, flow_log_days: 30}
nodes:
  workers: {instance_types: [m6i.large], max: 4}
locked: [retain, network.cidr, "nodes.*.ssh"]
"""


def load(folder: Path, text: str, **others: str) -> ClusterSpec:
    (folder / "org.yaml").write_text(ORG)
    for name, other in others.items():
        (folder / f"{name}.yaml").write_text(other)
    (folder / "cluster.yaml").write_text(text)
    return ClusterSpec.load(folder / "cluster.yaml")


def test_groups_are_merged_and_all_else_is_replaced(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        "extends: team.yaml\nnodes: {workers: {max: 9}, more: {}}\nretain: true\n",
        team="extends: org.yaml\nname: vision\nnetwork: {flow_log_days: 7}\n",
    )
    assert (spec.name, spec.owner, spec.retain) == ("vision", "platform team", True)
    assert (spec.network.cidr, spec.network.flow_log_days) == ("10.8.0.0/16", 7)
    assert (spec.nodes["workers"].instance_types, spec.nodes["workers"].max) == (["m6i.large"], 9)
    assert list(spec.nodes) == ["workers", "more"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("retain: false", "cluster.yaml: retain is false: org.yaml has locked retain at true"),
        ("network: {cidr: 10.9.0.0/16}", "network.cidr is 10.9.0.0/16: org.yaml has locked"),
        ("network: null", "network.cidr is empty: org.yaml has locked network.cidr"),
        (
            "nodes: {workers: {ssh: {key_pair: mine}}}",
            "nodes.workers.ssh is {'key_pair': 'mine'}: org.yaml has locked nodes.*.ssh;",
        ),
        ("locked: [network.cdir]", "cluster.yaml: locked has network.cdir"),
        ("network: {flow_log_days: 99999}", "cluster.yaml: network.flow_log_days"),
    ],
)
def test_what_breaks_a_lock_or_a_rule_is_told_by_its_file(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(SettingError) as error:
        load(tmp_path, f"extends: org.yaml\n{text}\n")
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        ("cluster.yaml", "allowed is a chain of up to 8 files that ends"),
        ("absent.yaml", "absent.yaml is missing"),
        ("[a, b]", "allowed is the path of a settings file"),
    ],
)
def test_a_chain_that_does_not_end_is_refused(tmp_path: Path, base: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        load(tmp_path, f"extends: {base}\n")


def test_a_fault_is_told_by_the_file_that_has_it(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^bad\.yaml: owner must be text"):
        load(tmp_path, "extends: bad.yaml\n", bad="extends: org.yaml\nowner: 7\n")
