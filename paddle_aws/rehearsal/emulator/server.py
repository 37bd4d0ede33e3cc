"""The AWS emulator as a child that cannot outlive its parent.

Runs in `.venv-emulator`, started by `rehearsal.cloud.Cloud`. Promises: MiniStack listens on a free
port of 127.0.0.1 that no one else can take in between (the bound socket itself is handed to it);
one JSON line with that port on stdout says it is ready; end of file on stdin, a parent that is
gone, SIGTERM or SIGINT end it together with every process it started; it never touches Docker, so
that it does the same on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

CHANGES = "resource_types repairs documents patience"
"""Modules of this folder that change MiniStack through their `apply()`, in this order."""


def environment(port: int, region: str, scratch: Path) -> dict[str, str]:
    """The settings that MiniStack reads when it is imported: they must be set before."""
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
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "PERSIST_STATE": "0",
        "AUTH": "false",
    }


async def ended() -> None:
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


def announced(app: Any, port: int) -> Any:
    """Wraps `app`: prints the port once `app` is ready, and serves the inventory beside MiniStack's
    own paths.
    """
    import stores

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":

            async def announce(message: Any) -> None:
                await send(message)
                if message["type"] == "lifespan.startup.complete":
                    print(json.dumps({"port": port}), flush=True)

            await app(scope, receive, announce)
        elif scope["type"] == "http" and scope["path"] == "/_rehearsal/inventory":
            body = json.dumps(stores.resources()).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            # Policies that require TLS protect the way to AWS, which does not exist on this
            # machine: claim TLS.
            await app(
                scope | {"headers": [*scope.get("headers", []), (b"x-forwarded-proto", b"https")]},
                receive,
                send,
            )

    return wrapped


def main() -> int:
    """Serves until the first sign of the end."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--region", required=True)
    arguments.add_argument("--scratch", required=True, type=Path)
    arguments.add_argument(
        "--part", action="append", default=[], type=Path, help="one more module to apply"
    )
    given = arguments.parse_args()

    # The socket listens from now on: early requests wait in its queue instead of being refused.
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listening.getsockname()[1]
    os.environ.update(environment(port, given.region, given.scratch))
    sys.path[:0] = [
        str(folder) for folder in (Path(__file__).parent, *(part.parent for part in given.part))
    ]

    from hypercorn.asyncio import serve
    from hypercorn.config import Config
    from ministack.app import app
    from ministack.core import lambda_runtime

    # Import all before the first changes anything: some keep what they find.
    parts = [
        importlib.import_module(name)
        for name in (*CHANGES.split(), *(part.stem for part in given.part))
    ]
    for part in parts:
        part.apply()

    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.keep_alive_timeout = 75
    config.loglevel = "WARNING"
    config.graceful_timeout = 0.5
    config.shutdown_timeout = 1

    async def run() -> None:
        await serve(announced(app, port), config, shutdown_trigger=ended)

    try:
        asyncio.run(run())
    finally:
        lambda_runtime.reset()
        # Other processes that it started (a worker in mid-call) share its process group.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    # Not all of MiniStack's background threads (schedulers, reapers) are daemons, and nothing is
    # left to wait for.
    os._exit(code)
