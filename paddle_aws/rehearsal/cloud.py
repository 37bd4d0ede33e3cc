"""An AWS account on this machine, for as long as a `with` block lasts.

The emulator listens on its own port, and the emulator and cdk write only to folders in `state`, so
two clones can run at once. Nothing reads the caller's own AWS settings, so no command here can
reach a real account.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from paddle_aws.operations.errors import BadInput, Exit, Failed
from paddle_aws.rehearsal.account import without_proxy
from paddle_aws.rehearsal.inventory import Inventory, Resource

ACCOUNT = "000000000000"
REGION = "us-west-2"
"""The tutorials' region."""


class CloudError(Failed):
    """The emulator or a command failed; the message ends with the last lines of its output."""


class Cloud:
    """An emulated AWS account, and the commands that run against it."""

    def __init__(
        self,
        project: Path,
        state: Path,
        report: Callable[[str], object] = lambda line: None,
        *,
        region: str = REGION,
        parts: Sequence[Path] = (),
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """`project` has cdk.json and the environments that `make rehearse` makes; `extra` is added
        to each child's environment.

        `parts`: further modules that change the emulator through their `apply()`.
        """
        self.project = project.resolve()
        self.state = state.resolve()
        self.region = region
        self._options = [f"--part={part}" for part in parts]
        self._report = report
        self._extra = dict(extra or {})
        self._life = ExitStack()
        self._port = 0
        self._key = self._secret = ""
        self._synthesized: tuple[Path, bytes] | None = None

    # Life cycle.

    def __enter__(self) -> Self:
        interpreter = self.project / ".venv-emulator" / "bin" / "python"
        if not interpreter.exists():
            raise CloudError(f"{interpreter} is missing: run `make rehearse`, which makes it")
        self.state.mkdir(parents=True, exist_ok=True)
        server = Path(__file__).parent / "emulator" / "server.py"
        scratch = str(self.state / "emulator")
        command = [
            str(interpreter),
            str(server),
            "--region",
            self.region,
            "--scratch",
            scratch,
            *self._options,
        ]
        log = self.state / "emulator.log"
        with ExitStack() as life, log.open("wb") as sink:
            pipes: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": sink,
            }
            emulator = life.enter_context(self._start(command, self.state, {}, **pipes))
            life.callback(end, emulator)
            line = emulator.stdout.readline()
            if not line:
                raise CloudError(
                    "the AWS emulator did not start:\n"
                    f"{_last_lines(log.read_text(errors='replace').splitlines())}"
                )
            ready = json.loads(line)
            self._port = ready["port"]
            self._key, self._secret = ready["administrator"]
            self._own_secret = ready["secret"]
            self.root: tuple[str, str] = tuple(ready["root"])
            self._life = life.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the emulator and everything it started."""
        self._life.close()

    # For clients.

    @property
    def endpoint(self) -> str:
        return f"http://localhost:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The AWS settings of cdk, boto3 and the pods, and proxy exceptions for the emulator;
        nothing else.
        """
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            # Hide the caller's profiles.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": without_proxy("NO_PROXY"),
            "no_proxy": without_proxy("no_proxy"),
        }

    def client(self, service: str) -> Any:
        """A boto3 client of this account."""
        import boto3

        options = {
            "aws_access_key_id": self._key,
            "aws_secret_access_key": self._secret,
            "region_name": self.region,
        }
        return boto3.session.Session(**options).client(service, endpoint_url=self.endpoint)

    # Commands.

    def bootstrap(self, config: Path | None = None) -> None:
        """Runs `paddle-aws bootstrap` with the settings of `config`, by default the project's
        cluster.yaml.
        """
        settings = str((config or self.project / "cluster.yaml").resolve())
        self.paddle_aws("bootstrap", settings)

    def deploy(self, config: Path, outputs_file: Path, *options: str) -> None:
        """Runs `cdk deploy --all` and writes the stacks' outputs to `outputs_file`."""
        outputs_file.parent.mkdir(parents=True, exist_ok=True)
        defaults = (
            "--all",
            "--require-approval",
            "never",
            "--outputs-file",
            str(outputs_file.resolve()),
        )
        self.cdk("deploy", *defaults, *options, config=config)

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
        lines = self._cdk(
            command, *arguments, "--output", assembly, "--context", f"config={settings[0]}"
        )
        self._synthesized = settings
        return lines

    def inventory(self) -> Inventory:
        """Everything that exists in the account now."""
        return Inventory(Resource(*row) for row in self._ask("inventory"))

    def service_credentials(self, service: str, role: str) -> Mapping[str, str]:
        """Credentials that a service (such as ec2.amazonaws.com) gets of a role; none if the role
        does not trust the service.
        """
        return self._ask("session", service=service, role=role) or {}

    def review_token(self, cluster: str, token: str) -> Any:
        """The status of Kubernetes' TokenReview: whether the cluster admits the token's owner."""
        return self._ask("review", cluster=cluster, token=token)

    # Internals.

    def _ask(self, what: str, **query: str) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/_rehearsal/{what}?{urlencode(query)}",
            headers={"Authorization": f"Bearer {self._own_secret}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)

    def _environ(self) -> dict[str, str]:
        """The caller's environment without its AWS and CDK settings; the project's programs come
        first on PATH.
        """
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "CDK_"))
        }
        environment_folder = self.project / ".venv"
        if not environment_folder.exists():
            environment_folder = Path(sys.prefix)
        programs = (
            environment_folder / "bin",
            self.project / "node_modules" / ".bin",
            environ.get("PATH", os.defpath),
        )
        environ |= {
            "PATH": os.pathsep.join(map(str, programs)),
            "VIRTUAL_ENV": str(environment_folder),
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        return environ | self._extra

    def _start(
        self, command: list[str], folder: Path, more: Mapping[str, str], **options: Any
    ) -> Any:
        """Starts a child in its own session: a Ctrl-C at the terminal does not reach the child, so
        we pass it on.
        """
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

    def paddle_aws(self, command: str, *arguments: str) -> list[str]:
        """Runs a `paddle-aws` command on this account. Returns its output's lines. Raises BadInput
        with the last on exit 2.
        """
        return self._run(
            f"paddle-aws {command}",
            [sys.executable, "-m", "paddle_aws.operations.main", command, *arguments],
        )

    def _run(self, what: str, command: list[str]) -> list[str]:
        environment = {
            "CDK_HOME": str(self.state / "cdk-home"),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "NO_COLOR": "1",
        }
        environment |= {"CDK_CI": "true", "CDK_NOTICES": "false"}
        lines: deque[str] = deque(maxlen=10_000)
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        with self._start(
            command, self.project, self.environment | environment, **pipes, errors="replace"
        ) as process:
            try:
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    self._report(lines[-1])
            except BaseException:
                end(process)
                raise
        if process.returncode == Exit.BAD_INPUT and what.startswith("paddle-aws"):
            raise BadInput(lines[-1])
        if process.returncode != 0:
            reasons = [line for line in lines if "_FAILED " in line][:5]
            raise CloudError(
                "\n".join(
                    [f"{what} failed with code {process.returncode}:", *reasons, _last_lines(lines)]
                )
            )
        return list(lines)


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


def _last_lines(lines: Sequence[str]) -> str:
    return "\n".join(list(lines)[-25:])
