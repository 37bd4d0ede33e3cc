"""An AWS account on this machine, for as long as a `with` block lasts.

The emulator listens on its own port, and the emulator and cdk write only to folders in `state`, so
two clones can run at once. Nothing reads the caller's own AWS settings, so no command here can
reach a real account.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from paddle_aws.operations.account.person import CommandError, Person, end, last_lines
from paddle_aws.rehearsal.account import Inventory, Resource, proxy_exceptions

ACCOUNT = "000000000000"
REGION = "us-west-2"
"""The tutorials' region."""


CloudError = CommandError
"""The emulator or a command failed; the message ends with the last lines of its output."""


class Cloud(Person):
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
        super().__init__(project, state, report, extra)
        self.region = region
        self._options = [f"--part={part}" for part in parts]
        self._life = ExitStack()
        self._port = 0
        self._key = self._secret = ""

    def __enter__(self) -> Self:
        interpreter = self.project / ".venv-emulator" / "bin" / "python"
        if not interpreter.exists():
            raise CloudError(f"{interpreter} is missing: run `make rehearse`, which makes it")
        self.state.mkdir(parents=True, exist_ok=True)
        server, scratch = Path(__file__).parent / "emulator/server.py", self.state / "emulator"
        command = [str(interpreter), str(server), "--region", self.region, *self._options]
        command += ["--scratch", str(scratch)]
        log = self.state / "emulator.log"
        with ExitStack() as life, log.open("wb") as sink:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": sink}
            emulator = life.enter_context(self._start(command, self.state, {}, **pipes))
            life.callback(end, emulator)
            line = emulator.stdout.readline()
            if not line:
                reason = last_lines(log.read_text(errors="replace").splitlines())
                raise CloudError(f"the AWS emulator did not start:\n{reason}")
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
            **proxy_exceptions(),
        }

    def client(self, service: str) -> Any:
        """A boto3 client of this account."""
        import boto3
        from botocore.config import Config

        session = boto3.session.Session(self._key, self._secret, region_name=self.region)
        # No proxy of the caller's reaches this machine.
        return session.client(service, endpoint_url=self.endpoint, config=Config(proxies={}))

    def inventory(self) -> Inventory:
        """Everything that exists in the account now."""
        return Inventory(Resource(*row) for row in self.ask("inventory"))

    def service_credentials(self, service: str, role: str) -> Mapping[str, str]:
        """Credentials that a service (such as ec2.amazonaws.com) gets of a role; none if the role
        does not trust the service.
        """
        return self.ask("session", service=service, role=role) or {}

    def ask(self, what: str, **query: str) -> Any:
        """The emulator's answer to what a rehearsal alone may ask."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/_rehearsal/{what}?{urlencode(query)}",
            headers={"Authorization": f"Bearer {self._own_secret}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)

    def _environ(self) -> dict[str, str]:
        """The caller's environment without its AWS and CDK settings."""
        own = {name for name in os.environ if name.startswith(("AWS_", "CDK_"))} - self._more.keys()
        return {name: value for name, value in super()._environ().items() if name not in own}
