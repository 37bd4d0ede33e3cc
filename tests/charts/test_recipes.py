"""Which recipe a job gets, and how the options of its command and of its resume become one line."""

from pathlib import Path

import pytest
import yaml

from k8s_charts.kinds import training_job
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.recipe import OptionLine, Options, load_shipped
from paddle_settings.errors import SettingError

COMMAND = "paddleformers-cli train x.yaml a=b"
MINE = {
    "source": {"name": "Mine", "repository": "r", "commit": "c", "files": ["f.py"]},
    "marks": {"command": r"train\.py"},
    "options": {"style": "group", "flag": ["-o", "--override"]},
    "output": {"option": "Global.dir", "default": "output/m"},
    "resume": {"set": {"Global.checkpoints": "{checkpoint_stem}"}, "drop": ["Global.pretrained"]},
    "checkpoint": {
        "path": "{folder}/*.pdparams",
        "files": ["{stem}.pdopt", "{stem}.states"],
        "last": "{stem}.states",
    },
    "metrics": {"loss": "loss: ([0-9.]+)", "step": r"step: (\d+)"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "program"
    (program / "ppcls").mkdir(parents=True)
    (program / "train.py").write_text("from my.trainer import Trainer\n")
    (program / "ppcls" / "engine.py").write_text("")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(MINE))
    return tmp_path


def job(folder: Path, command: str, **more: object) -> TrainingJob:
    settings = {
        "name": "x",
        "trainers": 2,
        "program": {"folder": "./program"},
        "data": {"prepared": True},
        "command": command,
    }
    return TrainingJob.parse(settings | more, folder)


@pytest.mark.parametrize(
    "style, command, line",
    [
        ("word", "t a=1 b=2 a=3", "t b=2 a=9"),
        ("word", "t", "t a=9"),
        ("flag", "t --a 1 --b 2 --a=3", "t --b 2 --a 9"),
        ("flag", "t --a -1 --b", "t --b --a 9"),
        ("flag", "t --a --b", "t --b --a 9"),
        # Only the last group counts: a second one would replace the first.
        ("group", "t -o a=1 b=2 -c f", "t -o b=2 a=9 -c f"),
        ("group", "t -o a=1 --over b=2", "t -o --over b=2 a=9"),
        ("group", "t -c f", "t -c f -o a=9"),
        ("repeated", "t -o a=1 -o b=2", "t -o b=2 -o a=9"),
    ],
)
def test_an_option_stands_once_in_the_line(style: str, command: str, line: str) -> None:
    flags = ["-o", "--over"] if style in ("group", "repeated") else []
    command_line = OptionLine(command.split(), 1, Options(style=style, flag=flags))
    command_line.set("a", "9")
    assert " ".join(command_line.words) == line
    assert command_line.value("a") == "9" and command_line.value("c") is None


def test_a_known_command_gets_its_recipe_and_the_pods_get_it_as_data(folder: Path) -> None:
    spec = job(folder, COMMAND, arguments=["resume_from_checkpoint=./base", "c={d}"])
    variables = training_job.settings(spec)
    assert variables["PADDLE_NODE_RECIPE"] == (
        "recipe paddleformers (PaddleFormers 1.2.0): the command has 'paddleformers-cli train "
        "x.yaml'; output_dir is output; resumes the newest complete output/checkpoint-* by "
        "resume_from_checkpoint"
    )
    typed = ["paddleformers-cli", "train", "x.yaml", "a=b", "resume_from_checkpoint=./base"]
    assert list(spec.command) == [*typed, "c={{d}}", "output_dir=output"]
    assert yaml.safe_load(variables["PADDLE_NODE_RESUME_LINE"]) == [
        *typed[:-1],
        "c={{d}}",
        "output_dir=output",
        "resume_from_checkpoint={newest:output/checkpoint-*}",
    ]
    assert variables["PADDLE_NODE_MODEL"] == "output/*model*.safetensors"
    assert set(spec.metrics) == {"loss", "learning_rate", "step", "steps_per_second", "epoch"}


@pytest.mark.parametrize(
    "command, more",
    [
        (COMMAND, {"recipe": "none"}),
        (COMMAND, {"resume": "--from {newest:output/*}"}),
        ("python train.py", {}),
        (f"bash -c '{COMMAND}'", {}),
        (COMMAND, {"runtime": "fleet-ps", "paddle": "2.6"}),
    ],
)
def test_other_jobs_have_none(folder: Path, command: str, more: dict) -> None:
    spec = job(folder, command, **more)
    assert spec.applied_recipe is None
    assert "PADDLE_NODE_RECIPE" not in training_job.settings(spec)


def test_what_needs_a_resumption_has_that_of_a_recipe(folder: Path) -> None:
    spec = job(folder, COMMAND, checkpoints="local")
    assert training_job.settings(spec)["PADDLE_NODE_CHECKPOINTS"] == "local"
    for command, more in (("python train.py", {}), (COMMAND, {"recipe": "none"})):
        with pytest.raises(SettingError, match="checkpoints is local: it counts only with `comm"):
            job(folder, command, checkpoints="local", **more)
    (folder / "base.yaml").write_text("checkpoints: local\n")
    spec = job(folder, "python train.py", extends="base.yaml")
    assert "PADDLE_NODE_CHECKPOINTS" not in training_job.settings(spec)


def test_a_recipe_of_ones_own_and_the_jobs_settings_win(folder: Path) -> None:
    spec = job(
        folder,
        "python train.py -c x -o Global.pretrained=w Global.checkpoints=z",
        recipe="./mine.yaml",
        metrics={"loss": "mine: ([0-9.]+)"},
        success="output/done",
    )
    recipe = spec.applied_recipe
    assert recipe is not None and recipe.sentence == (
        "recipe ./mine.yaml (Mine): job.yaml names it; Global.dir is output/m; resumes the newest "
        "complete output/m/*.pdparams by Global.checkpoints; job.yaml's own: success, metrics"
    )
    assert " ".join(recipe.resume_line) == (
        "python train.py -c x -o Global.dir=output/m "
        "Global.checkpoints={newest_stem:output/m/*.pdparams}"
    )
    assert spec.metrics == {**MINE["metrics"], "loss": "mine: ([0-9.]+)"}
    assert spec.success == "output/done" and recipe.last == "{stem}.states"


def test_a_relative_folder_is_led_below_the_output(folder: Path) -> None:
    spec = job(folder, f"{COMMAND} output_dir=./ckpt/a")
    assert spec.command[-1] == "output_dir=output/ckpt/a"
    assert "output_dir=./ckpt/a is led to output/ckpt/a" in spec.applied_recipe.sentence


@pytest.mark.parametrize(
    "change, command, sentence",
    [
        ({}, f"{COMMAND} output_dir=/tmp/x", "command has output_dir=/tmp/x: what lies outside of"),
        ({"marks": {}}, "", "mine.yaml: marks.command is missing"),
        (
            {"marks": {"command": "("}},
            "",
            "mine.yaml: marks.command is (: RE2 cannot read this pattern",
        ),
        (
            {"marks": {"command": "(?=x)"}},
            "",
            "mine.yaml: marks.command is (?=x): RE2 cannot read this pattern",
        ),
        (
            {"checkpoint": {"path": "{folder}/../../*"}},
            "",
            "mine.yaml: checkpoint.path is {folder}/../../*: a path below {folder}/ is needed",
        ),
        (
            {"checkpoint": {"path": "{folder}/*", "files": ["../x"]}},
            "",
            "mine.yaml: checkpoint.files has ../x: a name in or beside the checkpoint is needed",
        ),
        ({"resume": {"set": {"a": "b"}}}, "", "mine.yaml: resume.set names no checkpoint"),
        ({"options": {"style": "group"}}, "", "mine.yaml: options.style is group: flag belongs"),
        ({"metrics": {"loss": "x"}}, "", "mine.yaml: metrics.loss is x: a group is needed"),
        ({"model": "m"}, "", "mine.yaml: model is m: a path below {folder}/ is needed"),
    ],
)
def test_what_a_recipe_cannot_say_is_refused(
    folder: Path, change: dict, command: str, sentence: str
) -> None:
    (folder / "mine.yaml").write_text(yaml.safe_dump(MINE | change))
    with pytest.raises(SettingError) as refused:
        job(folder, command or "python train.py", **({} if command else {"recipe": "./mine.yaml"}))
    assert str(refused.value).startswith(sentence)


def test_an_unknown_recipe_is_refused(folder: Path) -> None:
    with pytest.raises(
        SettingError, match=r"recipe is paddlformers: none, .*paddleformers.*, or a"
    ):
        job(folder, COMMAND, recipe="paddlformers")


@pytest.mark.parametrize(
    "recipe, command, resumed",
    [
        (
            "paddleclas",
            "python tools/train.py -c c.yaml -o Global.epochs=2",
            "-c c.yaml -o Global.epochs=2 -o Global.output_dir=output"
            " -o Global.checkpoints={newest_stem:output/*.pdstates}",
        ),
        (
            "paddleocr",
            "python tools/train.py -c c.yml -o Global.epoch_num=2 Global.checkpoints=mine",
            "-c c.yml -o Global.epoch_num=2 Global.save_model_dir=output"
            " Global.checkpoints={newest_stem:output/[il][at]*.states}",
        ),
        (
            "paddledetection",
            "python tools/train.py -c c.yml -r mine -o epoch=2",
            "-c c.yml -o epoch=2 save_dir=output --resume {newest_stem:output/[0-9]*.pdopt}",
        ),
        (
            "paddleseg",
            "python tools/train.py --config c.yml --save_dir output/a --resume_model mine",
            "--config c.yml --save_dir output/a --resume_model {newest:output/a/iter_*}",
        ),
        (
            "paddlenlp",
            "python tools/train.py --output_dir=output/a",
            "--output_dir=output/a --resume_from_checkpoint {newest:output/a/checkpoint-*}",
        ),
    ],
)
def test_a_stack_is_known_by_its_files_and_resumes_by_its_own_option(
    folder: Path, recipe: str, command: str, resumed: str
) -> None:
    marks = load_shipped()[recipe].marks
    for name in ("tools/train.py", *marks.files):
        file = folder / "program" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        script = "from paddlenlp.trainer import Trainer\nresume_from_checkpoint = None\n"
        file.write_text(script if marks.script else "")
    applied = job(folder, command).applied_recipe
    assert applied is not None and applied.sentence.startswith(f"recipe {recipe} (")
    assert " ".join(applied.resume_line) == f"python tools/train.py {resumed}"
