"""The trainer image without a container engine: the files that trainer_image/Dockerfile copies, where it puts them.

Promises: the COPY, ENV, WORKDIR, ENTRYPOINT and CMD lines of the Dockerfile's last stage are the only list of
what is in the image; a file that no line copies, or that `Dockerfile.dockerignore` leaves out, is missing in a
rehearsed pod as it would be in a container.
Python and its packages come from `.venv-image`, which is locked by the same file as the image's.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rehearsal.errors import Refused


@dataclass(frozen=True)
class Copy:
    """One COPY line."""

    sources: tuple[str, ...]
    destination: str


@dataclass(frozen=True)
class Image:
    """What the last stage of a Dockerfile says."""

    copies: tuple[Copy, ...]
    environment: dict[str, str]
    working_dir: str
    entry_point: tuple[str, ...]
    command: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Patterns of files that are left out, relative to the folder that the image is built from."""

    def lay_out(self, context: Path, root: Path) -> None:
        """Put the image's files below `root`; `context` is the folder the image is built from."""
        root.mkdir(parents=True, exist_ok=True)
        for copy in self.copies:
            self._copy(copy, context, root)
        if self.working_dir:
            _below(root, self.working_dir).mkdir(parents=True, exist_ok=True)

    def _copy(self, copy: Copy, context: Path, root: Path) -> None:
        destination = _below(root, str(PurePosixPath("/", self.working_dir, copy.destination)))
        found = [path for source in copy.sources for path in _sources(context, source)]
        for source in found:
            if source.is_dir():
                shutil.copytree(
                    source, destination, dirs_exist_ok=True, ignore=lambda folder, names: self._left_out(context, folder, names)
                )
            elif source.is_file():
                into_folder = copy.destination.endswith(("/", "/.")) or copy.destination == "." or len(found) > 1
                target = destination / source.name if into_folder else destination
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
            else:
                raise Refused(f"trainer_image/Dockerfile: COPY {source.relative_to(context)}: no such file or folder")

    def _left_out(self, context: Path, folder: str, names: list[str]) -> list[str]:
        here = Path(folder).relative_to(context)
        return [name for name in names if any(_ignores(pattern, here / name) for pattern in self.ignored)]


def read(dockerfile: Path) -> Image:
    """The last stage of `dockerfile`. Raises Refused where a line cannot be understood."""
    try:
        text = dockerfile.read_text()
    except OSError as error:
        raise Refused(f"{dockerfile}: the trainer image's Dockerfile is not readable: {error.strerror}") from error
    copies: list[Copy] = []
    environment: dict[str, str] = {}
    working_dir = ""
    entry_point: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    for instruction, rest in _last_stage(_instructions(text)):
        match instruction:
            case "COPY" | "ADD":
                if copy := _copy_line(rest, dockerfile):
                    copies.append(copy)
            case "ENV":
                environment |= _env_line(rest, dockerfile)
            case "WORKDIR":
                working_dir = rest.strip()
            case "ENTRYPOINT":
                entry_point = _exec_form(rest, "ENTRYPOINT", dockerfile)
            case "CMD":
                command = _exec_form(rest, "CMD", dockerfile)
    return Image(tuple(copies), environment, working_dir, entry_point, command, _ignored(dockerfile))


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = []
    for line in joined.splitlines():
        instruction, _, rest = line.strip().partition(" ")
        found.append((instruction.upper(), rest.strip()))
    return found


def _last_stage(instructions: list[tuple[str, str]]) -> list[tuple[str, str]]:
    stages = [number for number, (instruction, _) in enumerate(instructions) if instruction == "FROM"]
    return instructions[stages[-1] :] if stages else instructions


def _copy_line(rest: str, dockerfile: Path) -> Copy | None:
    """None for `--from=`: what another stage built is Python and its packages, which `.venv-image` stands for."""
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    flags = [word for word in words if word.startswith("--")]
    names = [word for word in words if not word.startswith("--")]
    if any(flag.startswith("--from=") for flag in flags):
        return None
    if len(names) < 2 or "$" in rest:
        raise Refused(f"{dockerfile}: COPY {rest}: the rehearsal reads plain source and destination paths only")
    return Copy(tuple(names[:-1]), names[-1])


def _env_line(rest: str, dockerfile: Path) -> dict[str, str]:
    pairs = [word.partition("=") for word in shlex.split(rest)]
    if not all(equals for _, equals, _ in pairs):
        raise Refused(f"{dockerfile}: ENV {rest}: write NAME=value")
    return {name: value for name, _, value in pairs}


def _exec_form(rest: str, instruction: str, dockerfile: Path) -> tuple[str, ...]:
    try:
        return tuple(json.loads(rest))
    except json.JSONDecodeError:
        raise Refused(f'{dockerfile}: {instruction} {rest}: write the exec form, ["program", "argument"]') from None


def _ignored(dockerfile: Path) -> tuple[str, ...]:
    """Lines of the Dockerfile's own ignore file that name something; `**` and `!` say what else a builder is sent."""
    file = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
    lines = [line.strip() for line in file.read_text().splitlines()] if file.exists() else []
    return tuple(line for line in lines if line and line != "**" and not line.startswith(("#", "!")))


def _ignores(pattern: str, path: Path) -> bool:
    """`**/name` is a name at any depth; any other pattern is a path from the context's root."""
    if pattern.startswith("**/"):
        return fnmatch.fnmatch(path.name, pattern.removeprefix("**/"))
    return fnmatch.fnmatch(str(path), pattern)


def _sources(context: Path, source: str) -> list[Path]:
    relative = source.lstrip("/")
    return sorted(context.glob(relative)) if "*" in relative else [context / relative]


def _below(root: Path, container_path: str) -> Path:
    return root.joinpath(*PurePosixPath("/", container_path).parts[1:])
