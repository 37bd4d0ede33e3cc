"""cluster.yaml: which settings are refused, and with which sentence."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.errors import SettingError
from paddle_settings.file import value
from tests.charts.suggestions import refuse_no_suggestion

from .built import PROJECT

REFUSED, TAKEN = yaml.safe_load_all(Path(__file__).with_name("refused.yaml").read_text())


@pytest.mark.parametrize(
    ("text", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED]
)
def test_refused_with_one_sentence_that_names_the_field(
    text: str, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        ClusterSpec.load(file)
    assert str(caught.value).replace(f"{tmp_path}/", "") == sentence
    try:
        settings = value(text)
    except yaml.YAMLError:
        return

    def read(followed: object) -> None:
        file.write_text(yaml.safe_dump(followed))
        ClusterSpec.load(file)

    sentences = sentence.replace("s.yaml: ", "").splitlines()
    refuse_no_suggestion(settings, sentences, read)


@pytest.mark.parametrize("text", TAKEN)
def test_what_aws_takes_is_taken(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"retain: false\n{text}\n")
    ClusterSpec.load(tmp_path / "s.yaml")


def test_a_group_of_gpus_starts_with_the_fewest_machines() -> None:
    types = ["g5.xlarge"]
    groups = {
        "workers": {},
        "gpus": {"gpu": True, "instance_types": types},
        "none": {"gpu": True, "instance_types": types, "min": 0},
    }
    spec = ClusterSpec.model_validate({"retain": False, "nodes": groups})
    assert [group.desired for group in spec.nodes.values()] == [3, 1, 0]


def test_every_field_is_described() -> None:
    schema = ClusterSpec.model_json_schema()
    for name, group in {"ClusterSpec": schema, **schema["$defs"]}.items():
        bare = [key for key, value in group["properties"].items() if "description" not in value]
        assert bare == [], name


def test_reading_settings_needs_no_cdk() -> None:
    code = (
        "import sys, paddle_aws.stacks.cluster_spec; print([m for m in sys.modules "
        "if m.split('.')[0] in ('aws_cdk', 'jsii', 'constructs')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT
        ).stdout.strip()
        == "[]"
    )
