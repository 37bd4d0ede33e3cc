"""A job's folder, and splits into it, in this process or in one of their own."""

import os
import subprocess
import sys
from pathlib import Path

from paddle_node import environment as pod_environment
from paddle_node.contract import JobFolder
from paddle_node.data import data_manifest, job
from paddle_node.data.data_manifest import DataManifest, below
from paddle_node.data.settings import SplitSettings
from paddle_node.staging.shard_copy import verify_file

IMAGE = Path(__file__).parents[2] / "trainer_image"


class Job:
    """A job's folder and the data job's environment for it."""

    def __init__(self, root: Path) -> None:
        self.folder = JobFolder(root)

    def environment(self, source: Path | str, shards: int = 3, **more: object) -> dict[str, str]:
        basic = {"OUT_DIR": str(self.folder.root), "SPLIT_COUNT": str(shards), "DATA_SOURCE": str(source)}
        return basic | {name: str(value) for name, value in more.items()}

    def split(self, source: Path | str, shards: int = 3, **more: object) -> DataManifest:
        """In this process; raises what the data job would end with."""
        environ = self.environment(source, shards, **more)
        manifest = job.split(SplitSettings.from_environment(environ), environ)
        assert manifest is not None
        return manifest

    def command(self, source: Path | str, shards: int = 3, **more: object) -> tuple[list[str], dict[str, str]]:
        """The data job as a process of its own."""
        environ = os.environ | {"PYTHONPATH": str(IMAGE)} | self.environment(source, shards, **more)
        return [sys.executable, str(IMAGE / "split_data.py")], environ

    def run(self, source: Path | str, shards: int = 3, **more: object) -> subprocess.CompletedProcess[str]:
        command, environ = self.command(source, shards, **more)
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)

    def trainer(self, **more: object) -> pod_environment.NodeEnvironment:
        """Trainer 1 of 3 on this folder, whose program is the folder `words`."""
        (self.folder.root / "words").mkdir(exist_ok=True)
        basic = {
            "JOB_NAME": self.folder.root.name,
            "JOB_PATH": str(self.folder.root.parent),
            "TRAIN_CONFIG_DIR": "words",
            "CONF_PADDLE_GRADIENT_NUM": "3",
            "JOB_COMPLETION_INDEX": "1",
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "service",
            "POD_IP": "127.0.0.1",
        }
        return pod_environment.parse(basic | {name: str(value) for name, value in more.items()})

    def shard(self, index: int) -> bytes:
        """All bytes of a shard, in the order of its files' names."""
        return b"".join(path.read_bytes() for path in sorted(self.folder.shard(index).iterdir()))

    def held_out(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.folder.held_out.iterdir()))

    def data(self, linked: bool = True) -> dict[str, bytes]:
        """Every file that the manifest lists, checked against it, by its name in its shard; `linked`: as the links lead to it."""
        manifest = data_manifest.read(self.folder.data_manifest)
        assert manifest is not None
        found = {}
        shards = {f"{shard.index}/data": shard.files for shard in manifest.shards} | {"held-out/data": manifest.held_out}
        for place, files in shards.items():
            for file in files:
                verify_file(self.folder.root / file.name, file)
                content = (self.folder.root / file.name).read_bytes()
                found[f"{place}/{below(file.name)}"] = content
                assert not linked or (self.folder.root / place / below(file.name)).samefile(self.folder.root / file.name)
        return found

    def records(self, linked: bool = True) -> list[bytes]:
        """All lines, sorted, with those held out."""
        return sorted(line for content in self.data(linked).values() for line in content.split(b"\n")[:-1])
