"""uv against pip, from the same locks with hashes, in one run: each installs into an empty
environment, first with an empty cache, then with what that left.

    python benchmarks/install.py [LOCK ...]

The index is the one that pip.conf and PIP_* name. Seconds of the clock, and of the processor.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paddle_node.requirements import install

PROJECT = Path(__file__).parents[1]
LOCKS = (
    "requirements/project.lock",
    "trainer_image/requirements.lock",
    "trainer_image/requirements-collective.lock",
)
LOCKED = ("--require-hashes", "--no-deps")


def measure(command: list[str], environ: dict[str, str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, spent


def main() -> None:
    print("lock, installer, cache: seconds of the clock, of the processor")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options, variables = install.translate(os.environ, locked=True)
        environ = {**os.environ, **variables, "UV_CACHE_DIR": str(folder / "uv")}
        environ |= {"PIP_CACHE_DIR": str(folder / "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        for lock in sys.argv[1:] or LOCKS:
            for installer in ("uv", "pip"):
                for cache in ("empty", "full"):
                    place = folder / f"{installer}-{cache}-{Path(lock).stem}"
                    words = [] if installer == "pip" else ["--without-pip"]
                    subprocess.run([sys.executable, "-m", "venv", *words, place], check=True)
                    python = str(place / "bin" / "python")
                    pip = [python, "-m", "pip", "install", *LOCKED, "-r", str(PROJECT / lock)]
                    uv = [install.find_uv(), "pip", "install", "--python", python, *LOCKED]
                    command = pip if installer == "pip" else [*uv, *options, "-r", pip[-1]]
                    clock, processor = measure(command, environ)
                    print(f"{lock}, {installer}, {cache}: {clock:.1f}, {processor:.1f}", flush=True)
                    shutil.rmtree(place)


if __name__ == "__main__":
    main()
