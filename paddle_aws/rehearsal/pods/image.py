"""The trainer image without a container engine: the files that trainer_image/Dockerfile copies,
where it puts them.

A file that no COPY line of the last stage names is missing in a rehearsed pod, as in a container.
Python and its packages come from `.venv-image`, which the image's lock file pins as well.
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.folders import path_inside


@dataclass(frozen=True)
class Image:
    """The instructions of a Dockerfile's last stage."""

    copies: tuple[tuple[str, ...], ...]
    """The words of each COPY line: sources, then the destination."""
    environment: dict[str, str]
    working_dir: str

    def lay_out(self, context: Path, root: Path) -> None:
        """Puts the image's files below `root`; `context` is the folder that the image is built
        from.
        """
        path_inside(root, self.working_dir).mkdir(parents=True, exist_ok=True)
        for *sources, destination in self.copies:
            target = path_inside(root, destination)
            for source in (context / source for source in sources):
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                elif source.is_file():
                    file = target / source.name if destination.endswith("/") else target
                    file.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, file)
                else:
                    raise BadInput(
                        f"trainer_image/Dockerfile: COPY {source.relative_to(context)}: no such "
                        "file or folder"
                    )


def read(dockerfile: Path) -> Image:
    """Reads the last stage of our own Dockerfile, whose COPY lines have plain paths."""
    copies: list[tuple[str, ...]] = []
    environment: dict[str, str] = {}
    working_dir = "/"
    for instruction, rest in _last_stage(dockerfile.read_text()):
        words = shlex.split(rest)
        # The other stage builds Python and its packages; `.venv-image` stands in for them.
        if instruction == "COPY" and not any(word.startswith("--from=") for word in words):
            copies.append(tuple(word for word in words if not word.startswith("--")))
        elif instruction == "ENV":
            environment |= {
                name: value for name, _, value in (word.partition("=") for word in words)
            }
        elif instruction == "WORKDIR":
            working_dir = rest
    return Image(tuple(copies), environment, working_dir)


def _last_stage(text: str) -> list[tuple[str, str]]:
    """The instruction and the arguments of each line of the last stage."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    words = [line.strip().partition(" ") for line in joined.rpartition("FROM ")[2].splitlines()]
    return [(instruction.upper(), rest.strip()) for instruction, _, rest in words]
