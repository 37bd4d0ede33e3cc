"""Whether this machine can run a rehearsal: Paddle's wheels and 127.0.x.y addresses need Linux on x86-64."""

from __future__ import annotations

import platform
from pathlib import Path

from rehearsal.errors import Refused


def check(project: Path) -> str:
    """A line about the machine. Raises Refused with one sentence where it cannot rehearse."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise Refused(
            f"this machine is {system} {machine}: a rehearsal needs Linux on x86-64; synth, manifests and deploy work here too"
        )
    for environment in (".venv-image", ".venv-emulator"):
        if not (project / environment / "bin" / "python").exists():
            raise Refused(f"{environment} is missing: run `make rehearse`, which makes it")
    # Here: before `make setup` there is no paddle_node.
    from paddle_node import contract

    if contract.NOT_IN_PATHS.intersection(str(project)):
        raise Refused(
            f"this clone lies in {project}: parameter servers save through a shell, so a rehearsal needs a path without spaces, "
            "quotes and its other special characters; synth, manifests and deploy work here too"
        )
    return f"Linux x86-64, Python {platform.python_version()}"
