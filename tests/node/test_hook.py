"""The start-up hook in each Python that this machine has: it tells the agent how a process and its
children ended, and no program notices it.
"""

import ast
import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from paddle_node.agent.ranks import Python, Ranks
from paddle_node.contract import Variable
from paddle_node.runtimes import HOOK

SOURCE = Path(HOOK) / "sitecustomize.py"
OLDEST = 7
PROGRAM = """
import multiprocessing, os, sys
def fall(number):
    raise ValueError("child %d fell" % number)
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        child = multiprocessing.get_context(method).Process(target=fall, args=(1,))
        child.start()
        child.join()
        print(method, child.exitcode)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(abs, [1, -2]))
    open(sys.argv[1] + "/result", "w").close()
    try:
        raise OSError("the disk is full")
    except OSError:
        sys.exit(3)
"""


def find_pythons() -> list[Path]:
    """Returns one interpreter of each version that is installed, below that of this test."""
    found = {}
    for minor in range(OLDEST, 20):
        places = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        place = places[-1] if places else shutil.which(f"python3.{minor}")
        # A shim of pyenv may be there and yet not run.
        runs = place and subprocess.run([place, "-c", ""], capture_output=True).returncode == 0
        if runs:
            found[minor] = Path(str(place))
    return [*(found | {sys.version_info.minor: Path(sys.executable)}).values()]


def test_its_text_is_that_of_the_oldest_python() -> None:
    ast.parse(SOURCE.read_text(), feature_version=(3, OLDEST))


@pytest.mark.slow
@pytest.mark.parametrize("python", find_pythons(), ids=str)
def test_it_tells_how_each_process_ended_and_changes_none(tmp_path, python) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    pod = SimpleNamespace(home=tmp_path, program=tmp_path, environ={}, pod_ip="127.0.0.1")
    pod.environ["PADDLE_NODE_ROOT"] = str(tmp_path)
    output = tmp_path / "home/paddle/attempt/output"
    output.mkdir(parents=True)
    words = [str(python), "train.py", str(output)]
    plain = subprocess.run(words, env={}, cwd=tmp_path, capture_output=True, text=True, check=False)
    pythons: list[Python] = []

    async def run() -> tuple[str, str, int]:
        ranks = Ranks(pod, lambda rank: None)
        ranks.begin(pod, ())
        process = await asyncio.create_subprocess_exec(
            *words,
            env={Variable.WITNESS.value: str(ranks.folder), "PYTHONPATH": HOOK},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        texts = [text.decode() for text in await process.communicate()]
        ranks.list_codes()
        pythons.extend(ranks.all)
        ranks.close()
        return texts[0], texts[1], process.returncode or 0

    hooked = asyncio.run(run())
    assert hooked == (plain.stdout, plain.stderr, plain.returncode)
    assert plain.returncode == 3 and "spawn 1\n" in plain.stdout
    fallen = [one for one in pythons if one.error == "ValueError: child 1 fell (train.py:4)"]
    assert len(fallen) == 3 and all(one.uncaught for one in fallen), pythons
    (own,) = [one for one in pythons if not one.above]
    assert own.code == 3 and own.error == "OSError: the disk is full (train.py:15)"
    assert not own.uncaught and (own.saved or "/3.7." in str(python))
