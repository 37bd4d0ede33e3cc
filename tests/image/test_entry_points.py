"""What a container begins with: each script is in the image, and becomes the program itself, which
as process 1 gets the signals of a kubelet.
"""

import os
import subprocess
from pathlib import Path

import pytest

from paddle_aws.rehearsal.pods import image

IMAGE = Path(__file__).parents[2] / "trainer_image"
GOLDEN = Path(__file__).parents[1] / "charts" / "golden"
SCRIPTS = ("start.sh", "split.sh", "healthy.sh")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_becomes_its_program(name: str, tmp_path: Path) -> None:
    python, root = tmp_path / "bin/python3", tmp_path / "root"
    (root / "opt/paddle").mkdir(parents=True)
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho $$ "$@"\n')
    python.chmod(0o755)
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "PADDLE_NODE_ROOT": str(root)}
    with subprocess.Popen(
        [IMAGE / name, "word"], env=environment, stdout=subprocess.PIPE, text=True
    ) as script:
        process, *words = script.communicate()[0].split()
    assert int(process) == script.pid and words[-1] == "word"


def test_what_the_manifests_run_is_in_the_image(tmp_path: Path) -> None:
    image.read(IMAGE / "Dockerfile").lay_out(IMAGE.parent, tmp_path)
    places = (tmp_path / "usr/local/bin").iterdir()
    there = {file.name for file in places if os.access(file, os.X_OK)}
    text = "".join(file.read_text() for file in GOLDEN.glob("*.yaml"))
    assert there == {name for name in SCRIPTS if f"- /usr/local/bin/{name}\n" in text} == {*SCRIPTS}
