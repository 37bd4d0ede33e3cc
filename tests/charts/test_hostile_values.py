"""Whatever a user writes reaches the container unchanged: through our charts, cdk8s, YAML and the kubelet's expansion."""

# ruff: noqa: E501 (tables, one row a line)
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from cdk8s import Yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import write
from k8s_charts.spec import TrainingJob
from k8s_charts.yaml_documents import dump

pytestmark = pytest.mark.slow

SPECIAL = [
    "no", "yes", "on", "off", "null", "~", "true", "1e3", "0x1f", "0o17", "017", "1_000", "12:30:45", "2026-11-21", ".inf", "nan", "=", "<<",
    "", " ", "  two  ", "\t", "\n", "a\nb", "a\n", "\na", "a\r\nb", "- a", "a: b", "a #b", "#", "'", '"', "\\", "\\n", "it's", "{}", "[]", "{{x}}",
    "&a", "*a", "!t", "|", ">", "%", "@", "`", "?", ":", "---", "...", "--flag", "--flag=a b", "$", "$$", "$$$", "$(JOB_NAME)", "$$(JOB_NAME)",
    "$(", "$()", "$(NO_SUCH)", "${HOME}", "$é", "`id`", ";rm -rf /", "a\u0085b", "\u2028", "\ufeff", "é", "训练", "\U0001f680", "\x07", "\x7f", "x" * 5000,
]  # fmt: skip
# Everything but NUL, which no process can be given, and lone surrogates, which no UTF-8 file can hold.
TEXT = st.one_of(
    st.sampled_from(SPECIAL), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
)


def expand(value: str, environment: dict[str, str]) -> str:
    """The kubelet's expansion as Kubernetes documents it: `$(NAME)` is a variable's value where known, `$$` is `$`."""
    return re.sub(
        r"\$(\$|\(([^)]*)\))", lambda m: "$" if m[1] == "$" else environment.get(m[2], m[0]), value
    )  # fmt: skip


def containers(job: TrainingJob, outputs: ClusterOutputs, folder: Path) -> dict[str, dict[str, Any]]:
    """The container of each kind of pod, as the written files say it, and what it is told: as the kubelet makes it.

    A ConfigMap's values stay as they are; then each value may refer to the ones before it.
    """
    files = write(job, outputs, "image", folder)
    found = [document for path in files for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    maps = {d["metadata"]["name"]: d["data"] for d in found if d["kind"] == "ConfigMap"}
    pods = {d["metadata"]["labels"]["app.kubernetes.io/component"]: d["spec"] for d in found if d["kind"] == "Job"}
    pods |= {role: d["spec"][role] for d in found if d["kind"] == "PaddleJob" for role in ("ps", "worker")}
    made = {}
    for role, spec in pods.items():
        container = spec["template"]["spec"]["containers"][0]
        told: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            told |= maps[source["configMapRef"]["name"]]
        for variable in container["env"]:
            if "value" in variable:
                told[variable["name"]] = expand(variable["value"], told)
        assert all(isinstance(value, str) for value in told.values())
        texts = {field: [expand(word, told) for word in container.get(field, ())] for field in ("command", "args")}
        made[role] = {**texts, "told": told}
    return made


@settings(max_examples=300, deadline=None)
@given(value=st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.booleans(), st.lists(TEXT, max_size=3)), max_size=5))
def test_any_text_survives_our_yaml(value: dict[str, Any]) -> None:
    assert list(yaml.safe_load_all(dump([value, value]))) == [value, value]


def test_a_yaml_1_2_reader_agrees(tmp_path: Path) -> None:
    """cdk8s reads with npm's `yaml`, another parser with YAML 1.2's rules."""
    document = {"apiVersion": "v1", "values": SPECIAL, **{f"key{value}": value for value in SPECIAL}}
    path = tmp_path / "document.yaml"
    path.write_text(dump([document]), encoding="utf-8")
    assert list(Yaml.load(str(path))) == [document]


OURS = {"data": {"source": "s3://corpus/$(JOB_NAME)/$é"}}
PADDLE_JOB = {
    "controller": "paddlejob",
    "parameter_servers": 1,
    "volume": {"kind": "none"},
    "image": "image",
    "command": SPECIAL[:3],
}


@pytest.mark.parametrize("more", [OURS, PADDLE_JOB], ids=["job", "paddlejob"])
def test_every_special_value(more: dict[str, Any], outputs: ClusterOutputs, tmp_path: Path) -> None:
    given = {f"V{i}": value for i, value in enumerate(SPECIAL)}
    job = TrainingJob.parse({"name": "hostile", "trainers": 1, "arguments": SPECIAL, "environment": given, **more})
    made = containers(job, outputs, tmp_path)
    assert len(made) == 2
    if data := made.pop("data", None):
        assert data["told"]["DATA_SOURCE"] == OURS["data"]["source"]
    for found in made.values():
        assert {name: found["told"][name] for name in given} == given
        assert found["args"] == SPECIAL and found["command"] == more.get("command", ["/usr/local/bin/start.sh"])
