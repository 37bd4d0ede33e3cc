"""Clones of the project to rehearse in, a machine that runs manifests, and a way to see what was
left running.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.pods import manifests
from paddle_aws.rehearsal.pods.addresses import AddressBlock
from paddle_aws.rehearsal.pods.job import run_job
from paddle_aws.rehearsal.pods.paddle_operator import run_paddle_job

ROOT = Path(__file__).parents[2]
# Under `make test`, a make that a test starts would be part of that make, and print which folder it
# enters.
for inherited in ("MAKELEVEL", "MAKEFLAGS"):
    os.environ.pop(inherited, None)
_MADE = (".venv", ".venv-image", ".venv-emulator", "node_modules")
_NOT_CLONED = (
    *_MADE,
    ".git",
    ".rehearsal",
    "dist",
    "cdk.out",
    "tests",
    "__pycache__",
    ".*_cache",
    "*.egg-info",
)


def processes_of(folder: Path) -> list[int]:
    """Returns the live processes, except this one and its parent, whose environment or command line
    names `folder`.
    """
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) not in (os.getpid(), os.getppid()):
            with suppress(OSError):
                if (
                    str(folder).encode()
                    in (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                ):
                    found.append(int(process.name))
    return found


@pytest.fixture
def processes() -> Callable[[Path], list[int]]:
    return processes_of


def borrow_environments(folder: Path) -> None:
    """Links a clone to the original's environments, which make then takes for finished."""
    for name in _MADE:
        (folder / name).symlink_to(ROOT / name)
    # Older than any environment: otherwise make would rebuild these, which empties the original's
    # through the links.
    for path in [*folder.rglob("*.lock"), folder / "pyproject.toml", folder / "package-lock.json"]:
        os.utime(path, (0, 0))


class Clone:
    """A clone of the project's files with the original's environments. Without `validate`, the CDK
    does not validate its templates, half of a synth's time.
    """

    def __init__(self, folder: Path, validate: bool = False) -> None:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_NOT_CLONED))
        borrow_environments(folder)
        if not validate:
            file = folder / "cdk.json"
            settings = json.loads(file.read_text())
            settings["app"] = f"CDK_VALIDATION=false {settings['app']}"
            file.write_text(json.dumps(settings))
        self.folder = folder
        for sample in (
            folder / "examples" / "quick_start" / "sample.tsv",
            folder / "examples" / "launch" / "sample.csv",
        ):
            sample.unlink(missing_ok=True)
            subprocess.run([sys.executable, sample.with_name("make_sample.py"), sample], check=True)

    def start(self, *arguments: str, command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Starts a rehearsal as the leader of its own process group, as a shell does."""
        argv = command or (
            str(self.folder / ".venv" / "bin" / "python"),
            "-m",
            "paddle_aws.rehearsal",
        )
        return subprocess.Popen(
            [*argv, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Runs a whole rehearsal, of which no process may be left. Returns its exit code and
        output.
        """
        rehearsal = self.start(*arguments)
        said, _ = rehearsal.communicate()
        assert self.left_running == []
        return rehearsal.returncode, said

    @property
    def state(self) -> Path:
        return self.folder / ".rehearsal"

    def wait_until_running(self, rehearsal: subprocess.Popen[str], processes: int) -> None:
        """Waits until at least this many processes run, or the rehearsal has ended."""
        while len(self.left_running) < processes and rehearsal.poll() is None:
            time.sleep(0.05)

    def wait_until_none_runs(self) -> None:
        """Waits until no process is left: killed processes take a moment to disappear."""
        while self.left_running:
            time.sleep(0.1)

    @property
    def left_running(self) -> list[int]:
        return processes_of(self.state)


@pytest.fixture(scope="module")
def make_clone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Clone]:
    folder = tmp_path_factory.mktemp("clones")
    return lambda name, **options: Clone(folder / name, **options)


class Machine:
    """Runs manifests below a folder, with the test's own image."""

    def __init__(self, folder: Path, rehearsal: RehearsalFolder) -> None:
        self.folder, self.rehearsal = folder, rehearsal
        self.volume, self.logs = rehearsal.volume, rehearsal.logs

    def host(self, documents: list[dict]):
        (self.folder / "trainer_image").mkdir(exist_ok=True)
        (self.folder / "trainer_image/Dockerfile").write_text("FROM scratch\n")
        return self.rehearsal.host(
            self.folder, manifests.read(documents), Path(sys.executable).parent
        )

    def run(self, documents: list[dict]):
        host = self.host(documents)
        return self.run_on(host, (host.manifests.jobs or host.manifests.paddle_jobs)[0])

    def run_on(self, host, job):
        async def go():
            with AddressBlock() as block:
                return await (run_job if isinstance(job, manifests.Job) else run_paddle_job)(
                    job, host, block
                )

        return asyncio.run(go())

    def log(self) -> str:
        return "".join(file.read_text() for file in sorted(self.logs.glob("*.main.log")))

    @property
    def left_running(self) -> list[int]:
        return processes_of(self.folder)


@pytest.fixture
def dead_proxy(monkeypatch: pytest.MonkeyPatch) -> str:
    """A proxy in the shell that nothing answers at: what asks it fails."""
    address = "http://127.0.0.1:9"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, address)
        monkeypatch.setenv(name.lower(), address)
    return address


@pytest.fixture
def machine(tmp_path):
    """A machine in `tmp_path`. Afterwards no process that names this folder may be alive."""
    with RehearsalFolder(tmp_path / ".rehearsal") as rehearsal:
        rehearsal.begin()
        yield Machine(tmp_path, rehearsal)
    assert processes_of(tmp_path) == []
