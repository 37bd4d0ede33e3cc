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


def documents(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [d for path in sorted(folder.iterdir()) for d in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    return [document for document in found if document["kind"] == kind]


def container(folder: Path, component: str) -> dict[str, Any]:
    """The container of the Job of a component, with what its ConfigMaps say as `settings`."""
    label = "app.kubernetes.io/component"
    (job,) = [d for d in documents(folder, "Job") if d["metadata"]["labels"][label] == component]
    found: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    named = {source["configMapRef"]["name"] for source in found.get("envFrom", [])}
    maps = [d["data"] for d in documents(folder, "ConfigMap") if d["metadata"]["name"] in named]
    assert len(maps) == len(named)
    return {**found, "settings": {name: value for data in maps for name, value in data.items()}}


def environment(found: dict[str, Any]) -> dict[str, str]:
    """The variables as the kubelet makes them: a ConfigMap's as they are, then each value may refer to the ones before it."""
    made: dict[str, str] = dict(found["settings"])
    assert all(isinstance(value, str) for value in made.values())
    for variable in found["env"]:
        if "value" in variable:
            assert isinstance(variable["value"], str), f"{variable['name']} is no text in YAML"
            made[variable["name"]] = expand(variable["value"], made)
    return made


def check(values: list[str], outputs: ClusterOutputs, image: str, folder: Path) -> None:
    given_environment = {f"V{i}": value for i, value in enumerate(values)}
    job = TrainingJob.parse(
        {
            "name": "hostile",
            "trainers": 1,
            "data": {"source": "s3://corpus/" + values[0]},
            "arguments": values,
            "environment": given_environment,
        }
    )
    write(job, outputs, image, folder)
    trainer = container(folder, "trainer")
    made = environment(trainer)
    assert {name: made[name] for name in given_environment} == given_environment
    assert [expand(argument, made) for argument in trainer["args"]] == values
    assert environment(container(folder, "data"))["DATA_SOURCE"] == "s3://corpus/" + values[0]


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


# What kubectl's Go parser takes for no text although PyYAML's rules (YAML 1.1) call it text, and the other way round.


def test_every_special_value(outputs: ClusterOutputs, image: str, tmp_path: Path) -> None:
    check(SPECIAL, outputs, image, tmp_path)


@pytest.mark.slow
def test_every_special_value_in_a_paddle_job(outputs: ClusterOutputs, image: str, tmp_path: Path) -> None:
    given = {f"V{i}": value for i, value in enumerate(SPECIAL)}
    paddle_job = {"controller": "paddlejob", "parameter_servers": 1, "volume": {"kind": "none"}, "image": image}
    settings = {"name": "hostile", "trainers": 1, "command": SPECIAL[:3], "arguments": SPECIAL, "environment": given}
    write(TrainingJob.parse({**paddle_job, **settings}), outputs, image, tmp_path)
    (job,) = documents(tmp_path, "PaddleJob")
    for role in ("ps", "worker"):
        found = {**job["spec"][role]["template"]["spec"]["containers"][0], "settings": {}}
        made = environment(found)
        assert {name: made[name] for name in given} == given
        assert [expand(word, made) for word in found["command"]] == SPECIAL[:3]
        assert [expand(word, made) for word in found["args"]] == SPECIAL
