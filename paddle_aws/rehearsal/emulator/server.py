"""The AWS emulator as a child that cannot outlive its parent.

`rehearsal.cloud.Cloud` starts it in `.venv-emulator`. Promises:

* MiniStack listens on a free port of 127.0.0.1. It gets the bound socket itself, so nobody else can
  take the port in between.
* One JSON line on stdout, with the port, says that it is ready.
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
import signal
import socket
import sys
from pathlib import Path
from typing import Any

CHANGES = "resource_types repairs documents long_polling"
"""Modules of this folder that change MiniStack through their `apply()`, in this order."""


def environment(port: int, region: str, scratch: Path) -> dict[str, str]:
    """Returns the settings that MiniStack reads as it is imported; set them before."""
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


def wrap_app(app: Any, port: int) -> Any:
    """Wraps `app`: prints the port once `app` is ready, and serves the inventory beside MiniStack's
    own paths.
    """
    import stores

    async def app_with_inventory(scope: Any, receive: Any, send: Any) -> None:
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

    async def run() -> None:
        await serve(wrap_app(app, port), config, shutdown_trigger=wait_for_end)

    try:
        asyncio.run(run())
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
