"""What a person does in an account: paddle-aws and cdk, each a process of its own in one
environment, as they are typed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_aws.operations.errors import BadInput, Exit, Failed, TimedOut


class CommandError(Failed):
    """A command failed; the message ends with the last lines of its output."""


class Person:
    """The commands of one person, and what they wrote."""

    deadline: float | None = None
    """When (time.monotonic) a running command is ended; None: never."""

    def __init__(
        self,
        project: Path,
        state: Path,
        report: Callable[[str], object] = lambda line: None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """`project` has cdk.json; cdk writes its files to `state`; `report` gets each line of a
        command's output; `more` is added to each command's environment.
        """
        self.project, self.state = project.resolve(), state.resolve()
        self._report, self._more = report, dict(more or {})
        self._synthesized: tuple[Path, bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a command gets besides this process's own."""
        return {}

    def bootstrap(self, config: Path | None = None) -> None:
        """Runs `paddle-aws bootstrap` with the settings of `config`, by default the project's
        cluster.yaml.
        """
        settings = str((config or self.project / "cluster.yaml").resolve())
        self.paddle_aws("bootstrap", settings)

    def deploy(self, config: Path, outputs_file: Path, *options: str) -> None:
        """Runs `cdk deploy --all` and writes the stacks' outputs to `outputs_file`."""
        outputs_file.parent.mkdir(parents=True, exist_ok=True)
        outputs = ["--outputs-file", str(outputs_file.resolve())]
        self.cdk(
            "deploy", "--all", "--require-approval", "never", *outputs, *options, config=config
        )

    def destroy(self, config: Path, *options: str) -> None:
        """Runs `cdk destroy --all --force`."""
        self.cdk("destroy", "--all", "--force", *options, config=config)

    def cdk(self, command: str, *arguments: str, config: Path) -> list[str]:
        """Runs any cdk command on the project's app with the settings of `config`. Returns the
        lines of its output.

        The same settings are synthesized only once: a second command reuses the first one's
        assembly.
        """
        settings = (config.resolve(), config.read_bytes())
        assembly = str(self.state / "cdk.out")
        if self._synthesized == settings:
            return self._cdk(command, *arguments, "--app", assembly)
        self._synthesized = None
        options = ["--output", assembly, "--context", f"config={settings[0]}"]
        lines = self._cdk(command, *arguments, *options)
        self._synthesized = settings
        return lines

    def paddle_aws(self, command: str, *arguments: str) -> list[str]:
        """Runs a `paddle-aws` command. Returns its output's lines. Raises BadInput with the last on
        exit 2.
        """
        return self.python(f"paddle-aws {command}", "operations.main", command, *arguments)

    def python(self, what: str, module: str, *arguments: str) -> list[str]:
        """Runs a module of paddle_aws, as `paddle_aws`."""
        return self._run(what, [sys.executable, "-m", f"paddle_aws.{module}", *arguments])

    def _environ(self) -> dict[str, str]:
        """The caller's environment; the project's programs come first on PATH."""
        folder = self.project / ".venv"
        folder = folder if folder.exists() else Path(sys.prefix)
        path = os.environ.get("PATH", os.defpath)
        programs = (folder / "bin", self.project / "node_modules" / ".bin", path)
        own = {
            "PATH": os.pathsep.join(map(str, programs)),
            "VIRTUAL_ENV": str(folder),
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        return os.environ | own | self._more

    def _start(
        self, command: list[str], folder: Path, more: Mapping[str, str], **options: Any
    ) -> Any:
        """Starts a child in its own session: we pass on the Ctrl-C at the terminal."""
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**self._environ(), **more},
            start_new_session=True,
            text=True,
            **options,
        )

    def _cdk(self, command: str, *arguments: str) -> list[str]:
        return self._run(f"cdk {command}", ["cdk", command, *arguments, "--no-version-reporting"])

    def _run(self, what: str, command: list[str]) -> list[str]:
        environment = {
            "CDK_HOME": str(self.state / "cdk-home"),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_CI": "true",
            "CDK_NOTICES": "false",
            "NO_COLOR": "1",
        }
        lines: deque[str] = deque(maxlen=10_000)
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        late = threading.Event()
        with self._start(
            command, self.project, self.environment | environment, **pipes, errors="replace"
        ) as process:
            left = None if self.deadline is None else max(0, self.deadline - time.monotonic())
            timer = threading.Timer(left or 0, _end_late, (process, late))
            try:
                if left is not None:
                    timer.start()
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    self._report(lines[-1])
            except BaseException:
                end(process)
                raise
            finally:
                timer.cancel()
        if late.is_set():
            raise TimedOut(f"{what} was ended: its time was over")
        if process.returncode == Exit.BAD_INPUT and what.startswith("paddle-aws"):
            raise BadInput(lines[-1])
        if process.returncode != 0:
            failed = f"{what} failed with code {process.returncode}:"
            reasons = [line for line in lines if "_FAILED " in line][:5]
            raise CommandError("\n".join([failed, *reasons, last_lines(lines)]))
        return list(lines)


def _end_late(process: subprocess.Popen[Any], late: threading.Event) -> None:
    late.set()
    end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a process and its group: SIGTERM first, then SIGKILL if the process does not exit."""
    for number, timeout in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
            break
    # The leader is gone: kill the rest of its group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def last_lines(lines: Sequence[str]) -> str:
    """Returns the last 25 lines as one text."""
    return "\n".join(list(lines)[-25:])
