"""Whatever is in place of a settings file, its reader refuses it with one sentence that names the
file, and no traceback.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs, choose_image
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.cluster.kubeconfig_file import Entry, merge
from paddle_aws.operations.errors import BadInput
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.errors import SettingError

ROOT = Path(__file__).parents[2]
ROWS = list(pairwise("abcdefghijklmnopqrstuvwxyz"))
LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in ROWS)
MERGED = "a: &a {x: 1}\n" + "".join(f"{b}: &{b} {{<<: [*{a}, *{a}]}}\n" for a, b in ROWS)

YAML: dict[str, tuple[str | bytes, str]] = {
    "5,000 digits": ("trainers: " + "9" * 5000, "line 1: 999"),
    "5,000 digits of another base": ("trainers: 0x" + "f" * 5000, "line 1: 0xfff"),
    "5,000 digits as a key": ("9" * 1000 + ": 1", "line 1: 999"),
    "3,000 brackets": ("trainers: " + "[" * 3000, "is nested too deeply"),
    "3,000 groups": ("{a: " * 3000, "is nested too deeply"),
    "a very long key": ("? " + "k" * 5000 + "\n: 1", "a key has 5000 characters"),
    "aliases of a billion": (LAUGHS, "it stands for more than 100,000 values"),
    "merges of a billion": (MERGED, "it stands for more than 100,000 values"),
    "no UTF-8": (b"name: \xff", "is not UTF-8 text: byte 6"),
    "UTF-16": ("name: x".encode("utf-16"), "is not UTF-8 text: byte 0"),
    **yaml.safe_load(Path(__file__).with_name("hostile_files.yaml").read_text()),
    "100 MB": (b"", "has 104,857,600 bytes: at most 1,048,576 are allowed"),
    "a folder": (b"", "cannot be read: Is a directory"),
    "a FIFO": (b"", "is not a file"),
}
JSON = {case: YAML[case] for case in ("no UTF-8", "100 MB", "a folder", "a FIFO")}
JSON |= {
    "5,000 digits": ("[" + "9" * 5000 + "]", ""),
    "brackets": ("[" * 100_000, ""),
    "a number": ("[1]", ""),
}


def merged(path: Path) -> None:
    merge(path, Entry("name", {}, {}), None)


READERS: dict[str, Callable[[Path], object]] = {
    "cluster.yaml": ClusterSpec.load,
    "job.yaml": TrainingJob.load,
    "outputs.json": ClusterOutputs.load,
    "image.json": lambda path: choose_image(
        TrainingJob.load(ROOT / "job.yaml"), ClusterOutputs.placeholder(), path
    ),
    "kubeconfig": merged,
}
HOLDS = {name: YAML if name.endswith(".yaml") else JSON for name in READERS}


def lay(path: Path, case: str, content: str | bytes) -> None:
    if case == "a folder":
        path.mkdir()
    elif case == "a FIFO":
        os.mkfifo(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if case == "100 MB":
            os.truncate(path, 100 << 20)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in READERS for case in HOLDS[name]]
)
def test_a_hostile_file_is_one_sentence(name: str, case: str, tmp_path: Path) -> None:
    content, sentence = HOLDS[name][case]
    lay(tmp_path / name, case, content)
    with pytest.raises((SettingError, BadInput)) as refusal:
        READERS[name](tmp_path / name)
    message = str(refusal.value)
    assert name in message and "\n" not in message and len(message) < 400 + len(str(tmp_path))
    assert sentence in message or name in ("image.json", "kubeconfig")


@pytest.mark.parametrize("name", ["cluster.yaml", "job.yaml"])
def test_a_byte_order_mark_is_no_fault(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (ROOT / name).read_bytes())
    assert READERS[name](tmp_path / name) == READERS[name](ROOT / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("app.py", "cluster.yaml"), ("-m paddle_aws.operations.main manifests", "job.yaml")]
)
def test_a_hostile_file_ends_a_command_with_code_2(
    command: tuple[str, str], tmp_path: Path
) -> None:
    program, name = command
    (tmp_path / name).write_text("trainers: " + "9" * 5000)
    arguments = (
        program.split() if name == "cluster.yaml" else [*program.split(), str(tmp_path / name)]
    )
    environment = {**os.environ, "CDK_CONTEXT_JSON": json.dumps({"config": str(tmp_path / name)})}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert name == "job.yaml" or done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr and str(tmp_path / name) in done.stderr.replace("\n", "")
