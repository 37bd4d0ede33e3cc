# ruff: noqa: E501 (tables, one row a line)
"""What cannot work is refused before anything is written, in one sentence that says what is allowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from settings.errors import SettingError

PADDLEJOB = {"controller": "paddlejob", "parameter_servers": 2, "image": "demo:v1"}

REFUSED = [(row["settings"], row["refused"]) for row in yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())]
REFUSED += [
    ({"environment": {"A": "x" * 131_070}}, "environment.A has 131072 bytes: Linux starts no program with more than 131071"),
    ({"environment": {f"A{i}": "x" * 90_000 for i in range(3)}}, "environment has 270030 bytes as JSON: 250000 are allowed"),
    ({"arguments": ["a", "ä" * 65_536]}, "arguments.1 has 131072 bytes: Linux starts no program with more than 131071"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_refused_in_one_sentence(settings: dict[str, Any], sentence: str, job: Callable[..., TrainingJob]) -> None:
    with pytest.raises(SettingError) as refusal:
        job(**settings)
    assert sentence in str(refusal.value).splitlines()


FILES = {
    "name: x\nname: y\n": "job.yaml is not valid YAML: line 2: name is given twice",
    "- a\n": "job.yaml holds a list: allowed are `setting: value` lines",
    "": "job.yaml holds nothing: allowed are `setting: value` lines",
    "name: [\n": "job.yaml is not valid YAML: line 2: expected the node content, but found '<stream end>'",
    "name: x\ndata: {source: a}\n": "trainers is missing: How many pods train. In mode parameter-server of controller job each runs a parameter server and a trainer",
    "1: x\n": "job.yaml is not valid YAML: line 1: the key 1 is no text: put it in quotes",
    "~: x\n": "job.yaml is not valid YAML: line 1: the key ~ is no text: put it in quotes",
    "? [a, 1]\n: x\n": "job.yaml is not valid YAML: line 1: a list or a group of settings stands where the name of a setting belongs",
    "3\n": "job.yaml holds one value: allowed are `setting: value` lines",
    "Trainers: 3\nname: x\ndata: {source: a}\n": "Trainers is not a setting: did you mean trainers?",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_that_is_no_job_is_refused_in_one_sentence(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    with pytest.raises(SettingError) as refusal:
        TrainingJob.load(Path("job.yaml"))
    assert str(refusal.value) == FILES[text]


def test_every_wrong_setting_is_said_at_once(job: Callable[..., TrainingJob]) -> None:
    """A rule between settings too, where none of those is wrong by itself: `discovery` is, and the rule about it is not asked."""
    with pytest.raises(SettingError) as refusal:
        job(
            mode="collective",
            parameter_servers=2,
            runtime="pytorch",
            pases=5,
            discovery="pods",
            ports={"first": 65534, "host_ports": [1, 1]},
            resources={"cpu": "many"},
        )
    assert str(refusal.value).splitlines() == [
        "pases is not a setting: did you mean passes?",
        "discovery must be index or pod-list (found pods)",
        "runtime must be fleet-ps, collective, paddle-0.x or launch (found pytorch)",
        "ports.first is 65534: the parameter server's last port would be 65537, and 65535 is the highest",
        "ports.host_ports names a port twice: each may be taken once",
        "resources.cpu is many: a number of cores is allowed in steps of a thousandth, such as 500m, 0.5 or 2",
        "parameter_servers is 2: mode collective has none",
    ]


def test_yaml_may_share_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: x\ntrainers: 1\ndata: {source: a}\nresources: &small {cpu: 1}\ndata_resources: {<<: *small, memory: 1Gi}\n"
    )
    assert TrainingJob.load(path).data_resources.cpu == "1"


OUTPUTS = {
    "[]": "is no outputs file of cdk deploy: JSON that maps each stack to its outputs is allowed",
    "{": "is no outputs file of cdk deploy: JSON that maps each stack to its outputs is allowed",
    '{"s": {"Region": 1}}': "is no outputs file of cdk deploy: JSON that maps each stack to its outputs is allowed",
    "{}": "FileSystemId is missing: it has no default; AccessPointId is missing: it has no default; ",
    '{"s": {"DataJobCredentials": "keys"}}': "DataJobCredentials must be pod-identity or instance-profile (found keys); ",
    '{"s": {"HostPorts": "some"}}': "HostPorts must be open or closed (found some); ",
    '{"a": {"FileSystemId": "1"}, "b": {"FileSystemId": "2"}}': "has FileSystemId of two clusters: keep the stacks of one",
}


@pytest.mark.parametrize(("text", "sentence"), OUTPUTS.items())
def test_outputs_that_are_none_are_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "outputs.json"
    path.write_text(text)
    with pytest.raises(SettingError) as refusal:
        ClusterOutputs.load(path)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"ports": {"host_ports": True}, "discovery": "pod-list"},
            "ports.host_ports is given: the nodes of this self-managed cluster let only the pod network through, "
            "so leave it and discovery out",
        ),
        (
            {**PADDLEJOB, "paddlejob": {"intranet": "Host"}},
            "paddlejob.intranet is Host: the nodes of this self-managed cluster let only the pod network through, so leave it out",
        ),
    ],
)
def test_a_job_at_its_nodes_ports_is_refused_where_these_are_closed(
    settings: dict[str, Any], sentence: str, job: Callable[..., TrainingJob], outputs: ClusterOutputs, image: str
) -> None:
    with pytest.raises(SettingError) as refusal:
        documents(job(namespace="mine", **settings), outputs.model_copy(update={"host_ports": "closed"}), image)
    assert str(refusal.value) == sentence
