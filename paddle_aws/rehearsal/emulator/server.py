"""The AWS emulator as a child that cannot outlive its parent.

`rehearsal.cloud.Cloud` starts it in `.venv-emulator`. Promises:

* MiniStack listens on a free port of 127.0.0.1. It gets the bound socket itself, so nobody else can
  take the port in between.
* One JSON line on stdout, with the port and the administrator's credentials, says that it is
  ready. The credentials are new and random for each emulator.
* It answers only requests that name this machine as their host, come from no web page and are
  signed with a key that it gave out itself: functions are processes, so anybody else who may ask
  could run code as this user. What a rehearsal alone may ask (`/_rehearsal/`) needs a secret that
  only the JSON line has; MiniStack's own paths are closed.
* End of file on stdin, a parent that is gone, SIGTERM or SIGINT end it and every process that it
  started.
* It never uses Docker, so it does the same on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import re
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

CHANGES = "resource_types repairs identity"
"""Modules of this folder that change MiniStack through their `apply()`, in this order."""


OUR_HOST = re.compile(r"((.+\.)?localhost|127\.0\.0\.1):\d+")
"""Names that lead to this machine alone; a bucket's name may stand before `localhost`."""
CALLBACK = re.compile(r"/_ministack/cfn-response/[0-9a-f-]{36}")
"""Where a function reports a custom resource: the address itself is the secret, as on AWS."""


def environment(port: int, region: str, scratch: Path) -> dict[str, str]:
    """Returns the settings that MiniStack reads as it is imported; set them before.

    The two keys are root's. Commands get those of the account's first user, its administrator.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "GATEWAY_PORT": str(port),
        "MINISTACK_REGION": region,
        "MINISTACK_HOST": "localhost",
        "LOG_LEVEL": os.environ.get("LOG_LEVEL", "WARNING"),
        "TMPDIR": str(scratch),
        # With a Docker daemon, EKS would start k3s containers and so differ from a machine without
        # one.
        "DOCKER_HOST": "unix:///nonexistent/docker.sock",
        # Its functions answer to it alone: through the caller's proxy, a deploy would never end.
        "NO_PROXY": "*",
        "no_proxy": "*",
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "PERSIST_STATE": "0",
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": f"AKIA{secrets.token_hex(8).upper()}",
        "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(30),
    }


def make_administrator(account: str, region: str) -> dict[str, tuple[str, str]]:
    """Makes the account's first user, who may do everything. Returns the user's and root's keys."""
    from calls import client
    from ministack.core.responses import request_scope

    with request_scope(account, region):
        iam, name = client("iam"), "administrator"
        iam.create_user(UserName=name)
        policy = "arn:aws:iam::aws:policy/AdministratorAccess"
        iam.attach_user_policy(UserName=name, PolicyArn=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
    root = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    administrator = key["AccessKeyId"], key["SecretAccessKey"]
    return {"administrator": administrator, "root": root}


SECRET = secrets.token_urlsafe(30)
"""What a rehearsal shows when it asks under `/_rehearsal/`."""


def is_ours(scope: Any) -> bool:
    """Returns whether a request may be answered. MiniStack verifies a signature afterwards."""
    from ministack.core.router import extract_access_key_id
    from ministack.services import iam, sts

    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    if "origin" in headers or not OUR_HOST.fullmatch(headers.get("host", "")):
        return False
    if scope["path"].startswith("/_rehearsal/"):
        shown = headers.get("authorization", "")
        return secrets.compare_digest(shown.encode(), f"Bearer {SECRET}".encode())
    if scope["path"].startswith("/_ministack"):
        return scope["method"] == "PUT" and bool(CALLBACK.fullmatch(scope["path"]))
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    key = extract_access_key_id(headers, query)
    return bool(key) and (
        key in sts._sessions
        or key == os.environ["AWS_ACCESS_KEY_ID"]
        or key in [key_id for _, key_id in iam._access_keys.to_dict()]
    )


async def respond(send: Any, status: int, body: bytes = b"") -> None:
    """Sends a whole answer."""
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def wait_for_end() -> None:
    """Hypercorn's shutdown trigger: returns at the first sign that the server must end."""
    loop, parent, end = asyncio.get_running_loop(), os.getppid(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end.set)
    # The parent writes nothing: only the end of the pipe makes it readable.
    loop.add_reader(0, end.set)
    # The pipe's other end can survive the parent in a child that the parent forked: check the
    # parent too.
    while not end.is_set() and os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(end.wait(), 1)
    loop.remove_reader(0)


def wrap_app(app: Any, port: int, region: str) -> Any:
    """Wraps `app`: prints how to reach it once `app` is ready, refuses whoever is not ours, and
    answers `/_rehearsal/` beside MiniStack's own paths.
    """
    import stores
    from identity import ANSWERS
    from ministack.core.responses import request_scope

    async def app_with_inventory(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":

            async def announce(message: Any) -> None:
                await send(message)
                if message["type"] == "lifespan.startup.complete":
                    user = make_administrator(stores.ACCOUNT, region)
                    print(json.dumps({"port": port, "secret": SECRET, **user}), flush=True)

            await app(scope, receive, announce)
        elif scope["type"] != "http" or not is_ours(scope):
            await respond(send, 403)
        elif scope["path"].startswith("/_rehearsal/"):
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            asked = {name: values[0] for name, values in query.items()}
            with request_scope(stores.ACCOUNT, region):
                result = ANSWERS[scope["path"].removeprefix("/_rehearsal/")](**asked)
            await respond(send, 200, json.dumps(result).encode())
        else:
            # Policies that require TLS protect the way to AWS, which does not exist on this
            # machine: claim TLS.
            headers = [*scope["headers"], (b"x-forwarded-proto", b"https")]
            await app(scope | {"headers": headers}, receive, send)

    return app_with_inventory


def main() -> int:
    """Serves until the first sign of the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--region", required=True)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument(
        "--part", action="append", default=[], type=Path, help="one more module to apply"
    )
    options = parser.parse_args()

    # The socket listens from now on: early requests wait in its queue instead of being refused.
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listening.getsockname()[1]
    os.environ.update(environment(port, options.region, options.scratch))
    sys.path[:0] = [
        str(folder) for folder in (Path(__file__).parent, *(part.parent for part in options.part))
    ]

    from hypercorn.asyncio import serve
    from hypercorn.config import Config
    from ministack.app import app
    from ministack.core import lambda_runtime

    # Import all of them before one changes anything: some keep a reference to what they change.
    parts = [
        importlib.import_module(name)
        for name in (*CHANGES.split(), *(part.stem for part in options.part))
    ]
    for part in parts:
        part.apply()

    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.keep_alive_timeout = 75
    config.loglevel = "WARNING"
    config.graceful_timeout = 0.5
    config.shutdown_timeout = 1
    served = wrap_app(app, port, options.region)
    try:
        asyncio.run(serve(served, config, shutdown_trigger=wait_for_end))
    finally:
        lambda_runtime.reset()
        # A worker that it started may be in a call; it shares the process group.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    # Some of MiniStack's background threads are no daemons, and would keep the process alive.
    os._exit(code)
