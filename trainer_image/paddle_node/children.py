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
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
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

    def __init__(self, process: Process, name: str, popen: subprocess.Popen[bytes] | None, log: _Log | None) -> None:
        self.process = process
        self.name = name
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.wanted_end = False
        """The supervisor itself ended it: its exit code means nothing."""
        self._popen = popen
        self._log = log

    @property
    def pid(self) -> int:
        return self._popen.pid if self._popen is not None else 0

    def signal(self, number: signal.Signals) -> None:
        """To the process itself; its descendants are its own business."""
        if self.code is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def become(self, process: Process, name: str, header: str) -> bool:
        """Turns a standby process into `process`, with its name and its log; False when it has ended."""
        if self.code is not None or self._popen is None or self._popen.stdin is None:
            return False
        message = json.dumps({"argv": process.argv, "environ": dict(process.environ)}) + "\n"
        try:
            self._popen.stdin.write(message.encode())
            self._popen.stdin.close()
        except OSError:
            return False
        self.process = process
        self.name = name
        if self._log is not None:
            self._log.become(process.log, name, header)
        return True

    def drain(self) -> None:
        """Waits a moment for the last lines. Blocking."""
        if self._log is not None:
            self._log.join(DRAIN_DEADLINE)


class Children:
    """All processes of this pod. Lives in the event loop's thread; `on_end` is called there for each end."""

    def __init__(self, on_end: Callable[[Child], None]) -> None:
        self._on_end = on_end
        self._by_pid: dict[int, Child] = {}
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(self, process: Process, name: str, header: str) -> Child:
        """Starts a process; one that cannot be started is a child that ended with 127 (not found) or 126."""
        return self._start(process, name, header, stands_by=False)

    def stand_by(self, process: Process, name: str) -> Child:
        """Starts a process that waits to `become` another; its log on the volume begins then, with what it said before."""
        return self._start(process, name, "", stands_by=True)

    def _start(self, process: Process, name: str, header: str, stands_by: bool) -> Child:
        directory = process.working_directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            popen = subprocess.Popen(
                process.argv,
                env=dict(process.environ),
                cwd=directory,
                stdin=subprocess.PIPE if stands_by else subprocess.DEVNULL,
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
        log = _Log(popen.stdout, name)
        if not stands_by:
            log.become(process.log, name, header)
        child = Child(process, name, popen, log)
        self._by_pid[popen.pid] = child
        log.start()
        return child

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

    async def end(self, children: Sequence[Child]) -> list[Child]:
        """Ends processes at once, with SIGKILL: a lost attempt has nothing to save.

        Returns those that would not go within the deadline.
        """
        alive = [child for child in children if child.code is None and child.pid]
        for child in alive:
            child.wanted_end = True
            _kill_group(child.pid)
        deadline = time.monotonic() + END_DEADLINE
        for child in alive:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.ended.wait(), max(0.01, deadline - time.monotonic()))
        return [child for child in alive if child.code is None]


def _die_with_parent() -> None:
    """Between fork and exec: one system call, nothing that could need another thread's lock."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class _Log(threading.Thread):
    """Carries a child's output to its log, byte for byte, and to the pod's output, line by line.

    A log is known when its process is: what a process that stands by says until then is kept for it.
    """

    def __init__(self, source: IO[bytes], name: str) -> None:
        super().__init__(name=f"log of {name}", daemon=True)
        self._source = source
        self._of = name
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._early = b""
        self._begins: queue.SimpleQueue[tuple[Path, str, bytes]] = queue.SimpleQueue()

    def become(self, path: Path, name: str, header: str) -> None:
        """From now on the process is `name`'s, whose log begins with a line that tells one attempt from the next."""
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._begins.put((path, name, f"---- {header}, {began} ----\n".encode()))

    def run(self) -> None:
        rest = b""
        while part := os.read(self._source.fileno(), 65536):
            self._begin()
            self._write(part)
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines.append(rest)
                rest = b""
            for line in lines:
                say(self._of, line.decode(errors="replace"))
        self._begin()
        if rest:
            say(self._of, rest.decode(errors="replace"))
        self._source.close()
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        while not self._begins.empty():
            self._path, self._of, header = self._begins.get()
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab", buffering=0)
            except OSError as error:
                self._give_up(error)
            self._write(header + self._early)
            self._early = b""

    def _write(self, part: bytes) -> None:
        if self._path is None:
            self._early = (self._early + part)[-LONGEST_LINE:]
        if self._file is None:
            return
        try:
            self._file.write(part)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        say(self._of, f"{self._path} takes no lines: {error.strerror or error}; they go on in this pod's own log")
        self._file = None
