"""The processes of a pod: started, heard line by line, told to stop, ended with all their descendants, reaped.

Promises: every zombie is reaped, adopted ones included, so that this program may be PID 1; a child never outlives
the supervisor; every line of a child's output stands in its log on the volume and, with a prefix, in the pod's own
output; a volume that takes no more bytes never stops a child from writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

from paddle_node.runtimes import Process

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): adopt the orphans of one's descendants, as PID 1 does."""
END_DEADLINE = 10.0
"""Seconds for a SIGKILL to work; a process that hangs in the volume may take longer than anybody can wait."""
DRAIN_DEADLINE = 2.0
"""Seconds for the last lines of a process that has ended."""
LONGEST_LINE = 64 * 1024
"""Bytes without a line's end after which they are passed on all the same."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_output = threading.Lock()


def say(prefix: str, text: str) -> None:
    """Writes one line to the pod's own output, never mixed with another one."""
    line = f"[{prefix}] {text}\n".encode(errors="replace")
    with _output, contextlib.suppress(OSError):  # Nobody may read it: that must not end a training.
        while line:
            line = line[os.write(sys.stdout.fileno(), line) :]


class Child:
    """One process. `code` is its exit code, 128 + the signal's number where a signal ended it, None while it runs."""

    def __init__(self, process: Process, name: str, popen: subprocess.Popen[bytes] | None, pump: threading.Thread | None) -> None:
        self.process = process
        self.name = name
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.wanted_end = False
        """The supervisor itself ended it: its exit code means nothing."""
        self._popen = popen
        self._pump = pump

    @property
    def pid(self) -> int:
        return self._popen.pid if self._popen is not None else 0

    def signal(self, number: signal.Signals) -> None:
        """To the process itself; its descendants are its own business."""
        if self.code is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def become(self, process: Process) -> bool:
        """Turns a standby process into `process`; False when it has ended."""
        if self.code is not None or self._popen is None or self._popen.stdin is None:
            return False
        message = json.dumps({"argv": process.argv, "environ": dict(process.environ)}) + "\n"
        try:
            self._popen.stdin.write(message.encode())
            self._popen.stdin.close()
        except OSError:
            return False
        self.process = process
        return True

    def drain(self) -> None:
        """Waits a moment for the last lines. Blocking."""
        if self._pump is not None:
            self._pump.join(DRAIN_DEADLINE)


class Children:
    """All processes of this pod. Lives in the event loop's thread; `on_end` is called there for each end."""

    def __init__(self, on_end: Callable[[Child], None]) -> None:
        self._on_end = on_end
        self._by_pid: dict[int, Child] = {}
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(self, process: Process, name: str, header: str, standby: bool = False) -> Child:
        """Starts a process; one that cannot be started is a child that ended with 127 (not found) or 126."""
        header_line = f"---- {header}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} ----\n"
        directory = process.working_directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            popen = subprocess.Popen(
                process.argv,
                env=dict(process.environ),
                cwd=directory,
                stdin=subprocess.PIPE if standby else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            say(name, f"{process.argv[0]} cannot be started: {error.strerror or error}")
            child = Child(process, name, None, None)
            asyncio.get_running_loop().call_soon(self._ended, child, 127 if isinstance(error, FileNotFoundError) else 126)
            return child
        assert popen.stdout is not None
        pump = threading.Thread(target=_pump, args=(popen.stdout, process, name, header_line), daemon=True)
        child = Child(process, name, popen, pump)
        self._by_pid[popen.pid] = child
        pump.start()
        return child

    @property
    def running(self) -> list[Child]:
        return list(self._by_pid.values())

    def reap(self) -> None:
        """Takes the exit code of everything that has ended; adopted orphans are forgotten."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._by_pid.pop(pid, None)
            if child is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if child._popen is not None:
                child._popen.returncode = code
            _kill_group(pid)
            self._ended(child, code if code >= 0 else 128 - code)

    def _ended(self, child: Child, code: int) -> None:
        child.code = code
        child.ended.set()
        self._on_end(child)

    async def end(self) -> list[Child]:
        """Ends every process at once, with SIGKILL: a lost attempt has nothing to save.

        Returns those that would not go within the deadline.
        """
        for child in self.running:
            child.wanted_end = True
            _kill_group(child.pid)
        deadline = time.monotonic() + END_DEADLINE
        for child in self.running:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.ended.wait(), max(0.01, deadline - time.monotonic()))
        return self.running


def _die_with_parent() -> None:
    """Between fork and exec: one system call, nothing that could need another thread's lock."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _pump(source: IO[bytes], process: Process, name: str, header: str) -> None:
    """Carries a child's output to its log, byte for byte, and to the pod's output, line by line."""
    log: IO[bytes] | None = None
    try:
        process.log.parent.mkdir(parents=True, exist_ok=True)
        log = process.log.open("ab", buffering=0)
        log.write(header.encode())
    except OSError as error:
        say(name, f"{process.log} takes no lines: {error.strerror or error}; they go on in this pod's own log")
    rest = b""
    while part := os.read(source.fileno(), 65536):
        if log is not None:
            try:
                log.write(part)
            except OSError as error:
                say(name, f"{process.log} takes no more lines: {error.strerror or error}; they go on in this pod's own log")
                log = None
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = b""
        for line in lines:
            say(name, line.decode(errors="replace"))
    if rest:
        say(name, rest.decode(errors="replace"))
    source.close()
    if log is not None:
        log.close()
