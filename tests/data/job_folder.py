"""A job's folder, and splits into it, either in this process or in a separate one."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from paddle_node import environment as pod_environment
from paddle_node.data import job
from paddle_node.data.settings import SplitSettings
from paddle_node.failure import Failure
from paddle_node.staging.shard_copy import verify_file
from paddle_node.volume import data_manifest
from paddle_node.volume.data_manifest import DataManifest, name_in_shard
from paddle_node.volume.job_folder import JobFolder

IMAGE = Path(__file__).parents[2] / "trainer_image"
ENTRY = (str(IMAGE / "split_data.py"),)
"""How the image starts the data job."""

# The data job with pieces so small that a few kilobytes fill many files.
# AT names a function and N: before it calls the function for the N-th time, the job
# stops itself, as a frozen machine would.
STOPPING = """
import os, signal, sys
from paddle_node.data import commit, deal, job, parts, records
records.BLOCK, deal.CHUNK, parts.PART, parts.SMALL_PART = 512, 64, 2048, 1024
parts.BUFFER = 256
at, _, left = os.environ.get("AT", "").partition(" ")
left = int(left or 1)
if at:
    place = parts.PartFile if at == "done" else commit
    work = getattr(place, at)
    def stopping(*more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return work(*more)
    setattr(place, at, stopping)
sys.exit(job.main())
"""


class Job:
    """A job's folder and the data job's environment for it."""

    def __init__(self, root: Path) -> None:
        self.folder = JobFolder(root)

    def environment(self, source: Path | str, shards: int = 3, **more: object) -> dict[str, str]:
        settings = {
            "OUT_DIR": self.folder.root,
            "SPLIT_COUNT": shards,
            "DATA_SOURCE": source,
            **more,
        }
        return {name: str(value) for name, value in settings.items()}

    def split(self, source: Path | str, shards: int = 3, **more: object) -> DataManifest | None:
        """Splits in this process; raises what would end the data job. Returns None while other
        indexes are not done.
        """
        environ = self.environment(source, shards, **more)
        return job.split(SplitSettings.from_environment(environ), environ)

    def refused(
        self, sentence: str, code: int, source: Path | str, shards: int = 3, **more: object
    ) -> None:
        """Asserts that the split fails with `code` and with a sentence that matches the pattern
        `sentence`.
        """
        with pytest.raises(Failure, match=sentence) as caught:
            self.split(source, shards, **more)
        assert caught.value.code == code

    def start(
        self,
        source: Path | str,
        shards: int = 3,
        words: tuple[str, ...] = ("-c", STOPPING),
        **more: object,
    ) -> "Split":
        return Split(self.environment(source, shards, **more), words)

    def run(self, source: Path | str, shards: int = 3, ends: int = 0, **more: object) -> str:
        """Runs the data job as its image starts it, and asserts that it ends with `ends`. Returns
        its output.
        """
        return self.start(source, shards, ENTRY, **more).ended(ends)

    def trainer(self, **more: object) -> pod_environment.PodEnvironment:
        """The environment of trainer 1 of 3 on this folder; the program is the folder `words`."""
        (self.folder.root / "words").mkdir(parents=True, exist_ok=True)
        settings = {
            "JOB_NAME": self.folder.root.name,
            "JOB_PATH": self.folder.root.parent,
            "TRAIN_CONFIG_DIR": "words",
            "CONF_PADDLE_GRADIENT_NUM": "3",
            "JOB_COMPLETION_INDEX": "1",
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "service",
            "POD_IP": "127.0.0.1",
            **more,
        }
        return pod_environment.parse({name: str(value) for name, value in settings.items()})

    def shard(self, index: int) -> bytes:
        """All bytes of a shard, its files in the order of their names."""
        return b"".join(path.read_bytes() for path in sorted(self.folder.shard(index).iterdir()))

    def data(self, linked: bool = True) -> dict[str, bytes]:
        """Maps each listed file's name in its shard to its content, checked against the manifest
        and, if `linked`, the links.
        """
        manifest, contents = data_manifest.read(self.folder.data_manifest), {}
        shards = {f"{shard.index}/data": shard.files for shard in manifest.shards} | {
            "held-out/data": manifest.held_out
        }
        for place, files in shards.items():
            for file in files:
                path, name = self.folder.root / file.name, f"{place}/{name_in_shard(file.name)}"
                verify_file(path, file)
                contents[name] = path.read_bytes()
                assert not linked or path.samefile(self.folder.root / name)
        return contents

    def records(self, linked: bool = True) -> list[bytes]:
        """All lines, including the held-out ones, sorted."""
        return sorted(
            line for content in self.data(linked).values() for line in content.split(b"\n")[:-1]
        )


class Split(subprocess.Popen[str]):
    """The data job as a separate process in its own session."""

    def __init__(self, environ: dict[str, str], words: tuple[str, ...]) -> None:
        environ = os.environ | {"PYTHONPATH": str(IMAGE)} | environ
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        super().__init__(
            [sys.executable, *words], env=environ, text=True, start_new_session=True, **out
        )

    def ended(self, code: int = 0) -> str:
        """Waits for the end and asserts the exit code. Returns the output."""
        output, _ = self.communicate()
        assert self.returncode == code, output
        return output

    def stopped(self) -> "Split":
        """Waits until the process has stopped itself."""
        assert os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1])
        return self

    def kill_all(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self.communicate()


def table(name: str) -> Any:
    """A YAML file beside the tests, with inputs and the results expected of them."""
    return yaml.safe_load(Path(__file__).with_name(name).read_text())


def lines_file(path: Path, count: int) -> Path:
    path.write_text("".join(f"line {number}\n" for number in range(count)))
    return path


Members = list[tuple[str, bytes]]


def tar(files: Members, format: int = tarfile.GNU_FORMAT) -> bytes:
    """An archive with these names and contents."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format) as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: Members, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()
