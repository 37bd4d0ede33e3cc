"""The workers of a pod as processes: starts, signals and reaps them, and kills them with all their
descendants.

This program may be PID 1. No worker outlives the agent. No descendant of a worker, in whatever
session, outlives its attempt.
"""

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from paddle_node import background
from paddle_node.agent import limits, process_table
from paddle_node.agent.output import Log
from paddle_node.contract import FAIL_JOB, ExitCode
from paddle_node.environment import ProgramEnvironment
from paddle_node.runtimes import Process
from paddle_node.training.step_log import LineMetrics, StepLog
from paddle_node.volume import durable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): adopt orphaned descendants, as PID 1 does."""
END_DEADLINE = 10.0
"""Seconds for a SIGKILL to take effect. A process that hangs in the volume may take longer than
anyone can wait.
"""
DRAIN_DEADLINE = 2.0
"""Seconds to read the last lines of a process that has ended."""
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Worker:
    """One process. `code` is its exit code, 128 + the signal's number if a signal ended it, None
    while it runs.
    """

    def __init__(
        self, process: Process, name: str, popen: subprocess.Popen[bytes], log: Log
    ) -> None:
        self.process = process
        self.name = name
        self.code: int | None = None
        self.ended = asyncio.Event()
        self.wanted_end = False
        """Whether the agent ended it: then its exit code means nothing."""
        self.reported = False
        """Whether the rendezvous server knows of its end."""
        self.end = 0.0
        """When it ended."""
        self._popen = popen
        self.log = log

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def error(self) -> str:
        """Its last line if it exited with one of this project's codes or a shell's for a command
        that cannot start, else the exception at the end of its last traceback.
        """
        ours = (*FAIL_JOB, ExitCode.NODE_UNFIT, 126, 127)
        return self.log.last_line if self.code in ours else self.log.exceptions.last

    @property
    def uncaught(self) -> bool:
        """Whether `error` is the last text of its log."""
        return not self.log.exceptions.behind

    @property
    def quiet(self) -> float:
        return time.monotonic() - self.log.last_output

    @property
    def silent(self) -> float:
        """Seconds without output before it ended, its last words apart."""
        return self.log.measure_silence(self.end)

    def signal(self, number: signal.Signals) -> None:
        """Signals the process itself; its descendants are its own responsibility."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def become(self, process: Process, name: str, header: str) -> bool:
        """Turns a standby process into `process`, with its name and its log. Returns False if it
        has ended.
        """
        if self.code is not None or self._popen.stdin is None:
            return False
        message = json.dumps({"argv": process.argv, "environ": dict(process.environ)}) + "\n"
        try:
            self._popen.stdin.write(message.encode())
            self._popen.stdin.close()
        except OSError:
            return False
        self.process = process
        self.name = name
        self.log.become(process.log, name, header, _metrics(process))
        return True

    def drain(self) -> None:
        """Waits briefly for the last lines. Blocking."""
        self.log.join(DRAIN_DEADLINE)


class Workers:
    """All workers of this pod. Runs in the event loop's thread, and calls `on_end` there for each
    worker that ends.
    """

    def __init__(
        self,
        on_end: Callable[[Worker], object],
        on_exit: Callable[[int, int], object],
    ) -> None:
        """`on_exit` gets the process id and the exit code of each process that is reaped, adopted
        orphans included.
        """
        self._on_end = on_end
        self._on_exit = on_exit
        self._by_pid: dict[int, Worker] = {}
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(self, process: Process, name: str, header: str = "") -> Worker:
        """Starts a process. If it cannot start, starts a substitute that says so and exits with 127
        (not found) or 126.

        Without a `header` the process waits to `become` another. Its log on the volume begins then,
        with its earlier output.
        """
        directory = process.working_directory
        no_process_ids = OSError(
            errno.EAGAIN, f"there are no process ids left in this pod for {process.argv[0]}"
        )

        def run(argv: Sequence[str], directory: Path | None = None) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                env=dict(process.environ),
                cwd=directory,
                stdin=subprocess.DEVNULL if header else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_prepare_child,
            )

        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            if process.link is not None:
                durable.link(process.link[0], str(process.link[1]))
            popen = run(process.argv, directory)
        except BlockingIOError:
            raise no_process_ids from None
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            sentence = f"{process.argv[0]} cannot be started: {error.strerror or error}"
            popen = run(("/bin/sh", "-c", f'echo "$0"; exit {code}', sentence))
        assert popen.stdout is not None
        log = Log(popen.stdout, name)
        if header:
            log.become(process.log, name, header, _metrics(process))
        worker = Worker(process, name, popen, log)
        if not background.start(log):
            popen.kill()
            popen.wait()
            raise no_process_ids
        self._by_pid[popen.pid] = worker
        return worker

    def reap(self) -> None:
        """Collects the exit code of every worker that has ended; adopted orphans are reaped and
        forgotten.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = process_table.as_code(status)
            self._on_exit(pid, code)
            worker = self._by_pid.pop(pid, None)
            if worker is None:
                continue
            worker._popen.returncode = code
            if not worker.process.judged:  # Else what it has started may still train.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            worker.code, worker.end = code, time.monotonic()
            worker.ended.set()
            self._on_end(worker)

    def count(self) -> int:
        """Returns how many processes and threads the descendants of this process are."""
        count = 0
        for pid in _descendants():
            with contextlib.suppress(OSError):
                count += len(list(Path(f"/proc/{pid}/task").iterdir()))
        return count

    async def end(self, kept: Collection[Worker]) -> list[str]:
        """Kills all descendants of this process except `kept`. Returns those still alive after the
        deadline.
        """
        stay = {worker.pid for worker in kept}
        for worker in self._by_pid.values():
            worker.wanted_end = worker.wanted_end or worker.pid not in stay
        deadline, pause = time.monotonic() + END_DEADLINE, 0.005
        while alive := _descendants(stay):
            if time.monotonic() > deadline:
                return [
                    self._by_pid[pid].name if pid in self._by_pid else f"process {pid}"
                    for pid in alive
                ]
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.2)
            self.reap()
        return []


def _metrics(process: Process) -> LineMetrics | None:
    """Reads metrics from a program's lines; None if the program's environment asks for none."""
    program = ProgramEnvironment.read(process.environ)
    if not program.steps or not program.metrics:
        return None
    return LineMetrics(StepLog(Path(program.steps), program.attempt), program.metrics)


def _prepare_child() -> None:
    """Runs between fork and exec: system calls, nothing that could need another thread's lock."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    limits.give_back_open_files()
    # A core file would fill the pod's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _descendants(but: Collection[int] = ()) -> list[int]:
    return [entry.pid for entry in process_table.descendants(os.getpid(), but)]
