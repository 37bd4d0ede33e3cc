"""Runs docker or podman: the first that answers. An installed one that does not answer (docker
without its daemon) is skipped.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from paddle_aws.operations.errors import BadInput, Failed

NAMES = ("docker", "podman")


class ContainerRuntime:
    """Runs the runtime's own command line; its output goes to the terminal."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def find(cls) -> Self:
        """Returns the first of docker and podman that answers. Raises BadInput if neither does."""
        # Not through pipes: a process that one of them leaves behind would hold them open.
        silent = subprocess.DEVNULL
        for name in filter(shutil.which, NAMES):
            if subprocess.call([name, "info"], stdout=silent, stderr=silent) == 0:
                return cls(name)
        raise BadInput(
            "neither docker nor podman answers (`docker info`, `podman info`): install one of "
            "them, or start it"
        )

    def build(
        self,
        context: Path,
        dockerfile: Path,
        tag: str,
        arguments: Mapping[str, str],
        hear: Callable[[str], None] | None = None,
    ) -> None:
        """Builds an image; `hear` gets each line of the output as well. Raises Failed after the
        runtime has printed why.
        """
        command = ["build", "--platform", "linux/amd64", "--file", str(dockerfile), "--tag", tag]
        if self.name == "podman":
            # docker finds the ignore file by its name; podman needs the option.
            command += ["--ignorefile", f"{dockerfile}.dockerignore"]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        failed = f"{self.name} could not build {tag}: its last lines say why"
        self._run([*command, str(context)], failed, hear)

    def image_id(self, tag: str) -> str:
        """Returns the hash of the image's configuration, equal for equal content; empty if no image
        has that name.
        """
        return self._inspect(tag, "{{.Id}}").removeprefix("sha256:")

    def size(self, tag: str) -> int:
        """Returns the bytes of the unpacked image."""
        return int(self._inspect(tag, "{{.Size}}") or 0)

    def cuda(self, tag: str) -> str:
        """Returns the CUDA version that NVIDIA's images, and images based on them, declare; empty
        if the image declares none.
        """
        variables = self._inspect(tag, '{{join .Config.Env "\\n"}}')
        match = re.search(r"^CUDA_VERSION=(.*)$", variables, re.MULTILINE)
        return match[1] if match else ""

    def login(self, registry: str, user: str, password: str) -> None:
        """Logs in to a registry. Raises Failed with the runtime's message."""
        command = [self.name, "login", "--username", user, "--password-stdin", registry]
        done = subprocess.run(command, input=password, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise Failed(f"{self.name} could not log in to {registry}: {why}")

    def push(self, tag: str, remote: str) -> str:
        """Pushes the image as `remote`; returns the digest that the registry has for it, empty if
        the runtime did not keep it. Raises Failed after the runtime has printed why.
        """
        self._run(["tag", tag, remote], f"{self.name} could not name {tag} {remote}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "digest"
            # What podman has on this machine may differ from what it pushed, by its compression.
            options = ["--digestfile", str(file)] if self.name == "podman" else []
            failed = f"{self.name} could not push {remote}: its last lines say why"
            self._run(["push", *options, remote], failed)
            if file.exists():
                return file.read_text().strip()
        names = self._inspect(remote, '{{join .RepoDigests "\\n"}}').split()
        own = f"{remote.rpartition(':')[0]}@"
        return next((name.removeprefix(own) for name in names if name.startswith(own)), "")

    def _run(
        self, arguments: Sequence[str], failed: str, hear: Callable[[str], None] | None = None
    ) -> None:
        to = None if hear is None else subprocess.PIPE
        with subprocess.Popen(
            [self.name, *arguments], stdout=to, stderr=to and subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                assert hear is not None
                hear(line)
        if process.returncode != 0:
            raise Failed(failed)

    def _inspect(self, tag: str, field: str) -> str:
        command = [self.name, "image", "inspect", "--format", field, tag]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
