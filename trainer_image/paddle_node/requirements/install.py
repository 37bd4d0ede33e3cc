"""Runs pip, and says what it installs, how far it is and how long that takes.

Standard library only: make runs this file before anything else is installed:

    python trainer_image/paddle_node/requirements/install.py NAME PYTHON [PIP'S OPTIONS ...]
"""

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

REPORT_INTERVAL = 5.0
"""Seconds between two reports."""
CONFLICT = "The conflict is caused by:"
"""The line of pip's output that begins the list of who asks for what."""
_DOING = re.compile(r"\s*((?:Collecting|Downloading|Using cached|Building|Installing) .{,60})")


def run(
    command: Sequence[str | Path],
    say: Callable[[str], object],
    environ: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Runs pip, without `--quiet`. `say` gets a report every few seconds. Returns pip's exit code
    and what it wrote to stderr; in front of that, who asked for what if there is a conflict, or
    else the package that it took up last.
    """
    began, packages, doing = time.monotonic(), 0, "resolving"
    lines, conflicting = list[str](), False
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, "--progress-bar", "off"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environ,
            text=True,
            errors="replace",
        )
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(REPORT_INTERVAL):
                say(f"{packages} packages, {time.monotonic() - began:.0f} s: {doing}")

        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        try:
            for line in process.stdout or ():
                if conflicting or line.startswith(CONFLICT):
                    conflicting = True
                    lines.append(line)
                elif "(from " in line:
                    lines.append(line)
                if match := _DOING.match(line):
                    packages, doing = packages + line.startswith("Collecting"), match[1].rstrip()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            ended.set()
            process.wait()
        reporter.join()
        errors.seek(0)
        return code, "".join(lines if conflicting else lines[-1:]) + errors.read()


def main() -> int:
    """Installs, with a line at the beginning and the end, and on a terminal more in between."""
    what, python, *options = sys.argv[1:]
    began = time.monotonic()
    print(f"setup: {what}", flush=True)

    def say(text: str) -> None:
        if sys.stdout.isatty():
            print(f"setup: {what}: {text}", flush=True)

    pip = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    code, errors = run([*pip, *options], say)
    if code:
        sys.stderr.write(errors)
        return code
    print(f"setup: {what}: ready after {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
