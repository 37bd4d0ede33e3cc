"""What cannot work is refused before anything is written, in one sentence that says what is
allowed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from paddle_settings.errors import SettingError
from tests.charts.suggestions import refuse_no_suggestion


def table(name: str) -> list[Any]:
    rows: list[Any] = yaml.safe_load(Path(__file__).with_name(name).read_text())
    return rows


REFUSED = [(row["settings"], row["refused"]) for row in table("refusals.yaml")]
CLOSED = [
    (row["open"], row["settings"], row["refused"]) for row in table("refused_at_closed_nodes.yaml")
]
REFUSED += [
    (
        {"environment": {"A": "x" * 131_070}},
        "environment.A has 131072 bytes: Linux starts no program with more than 131071",
    ),
    (
        {"environment": {f"A{i}": "x" * 90_000 for i in range(3)}},
        "environment has 270030 bytes as JSON: 250000 are allowed",
    ),
    (
        {"arguments": ["a", "ä" * 65_536]},
        "arguments.1 has 131072 bytes: Linux starts no program with more than 131071",
    ),
]


@pytest.mark.parametrize(
    ("settings", "sentence"), REFUSED, ids=[str(sentence)[:60] for _, sentence in REFUSED]
)
def test_refused_in_one_sentence(
    settings: dict[str, Any], sentence: str | list[str], job: Callable[..., TrainingJob]
) -> None:
    with pytest.raises(SettingError) as refusal:
        job(**settings)
    lines = str(refusal.value).splitlines()
    assert lines == sentence if isinstance(sentence, list) else sentence in lines
    refuse_no_suggestion(settings, lines, lambda followed: job(**followed))


@pytest.mark.parametrize("command", table("quoted_commands.yaml"))
def test_a_quoted_word_of_a_command_stays_as_it_is(
    job: Callable[..., TrainingJob], command: object
) -> None:
    assert job(command=command).command


def test_a_program_that_hands_in_a_key_that_is_no_text_gets_a_sentence() -> None:
    settings: Any = {"name": "words", "trainers": 3, "data": {"prepared": True}, 1: "x"}
    with pytest.raises(SettingError, match=r"^\[1\] is not a setting: its name must be text$"):
        TrainingJob.parse(settings)


READERS: dict[str, Callable[[Path], object]] = {
    "job.yaml": TrainingJob.load,
    "outputs.json": ClusterOutputs.load,
}


@pytest.mark.parametrize(("name", "text", "sentence"), table("refused_files.yaml"))
def test_a_file_that_is_none_is_refused_in_one_sentence(
    name: str, text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(SettingError) as refusal:
        READERS[name](Path(name))
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(("ports", "settings", "sentence"), CLOSED)
def test_a_job_at_its_nodes_ports_is_refused_where_these_are_closed(
    ports: str,
    settings: dict[str, Any],
    sentence: str | None,
    job: Callable[..., TrainingJob],
    outputs: ClusterOutputs,
) -> None:
    asked = (
        job(namespace="mine", **settings),
        outputs.model_copy(update={"host_ports": ports}),
        "image",
    )
    if sentence is None:
        assert documents(*asked)
        return
    with pytest.raises(SettingError) as refusal:
        documents(*asked)
    assert str(refusal.value) == sentence
