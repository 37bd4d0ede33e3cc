"""A rehearsal as people run it, for tests that kill its ranks."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path


class Rehearsal:
    """`paddle-aws rehearse` of a job's folder. `process` is what the command lines of its ranks
    have.
    """

    def __init__(self, place: Path, name: str, process: str, *words: str) -> None:
        self.place, self._name, self._process = place, name, process.encode()
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        # Beside the job's folder, which is the program's as well.
        self._log = place.with_name("rehearsal.log")
        self._output = self._log.open("w")
        self.process = subprocess.Popen(
            ["paddle-aws", "rehearse", "job.yaml", *words],
            cwd=place,
            env=environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    @property
    def messages(self) -> str:
        return " ".join(self._log.read_text().split())

    @property
    def output(self) -> Path:
        return self.place / ".rehearsal" / "volume" / self._name / "output"

    def wait_for(self, pattern: str, seconds: float = 1800) -> Path:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if match := next(self.output.glob(pattern), None):
                return match
            assert self.process.poll() is None, self.messages
            time.sleep(0.01)
        raise AssertionError(f"no {pattern} in {seconds} s: {self.messages}")

    def wait_for_line(self, text: str, seconds: float = 1800) -> None:
        """Waits until rank 0 has printed a line with the text."""
        log, deadline = self.output / "node_0" / "train.log", time.monotonic() + seconds
        while time.monotonic() < deadline:
            if log.exists() and text in log.read_text(errors="replace"):
                return
            assert self.process.poll() is None, self.messages
            time.sleep(0.01)
        raise AssertionError(f"no line with {text!r} in {seconds} s: {self.messages}")

    def kill_rank(self, rank: int) -> None:
        """Kills the process of that rank that this rehearsal started."""
        killed = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = (folder / "cwd").readlink().is_relative_to(self.place.resolve())
                command = (folder / "cmdline").read_bytes()
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            named = f"PADDLE_TRAINER_ID={rank}".encode() in environment
            if mine and named and self._process in command:
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        assert killed, "no process of that rank is there"

    def cut(self, pattern: str) -> None:
        """Truncates the newest file of the first attempt that matches."""
        file = max(self.output.glob(f"attempts/*-1/output/{pattern}"), key=os.path.getmtime)
        os.truncate(file, file.stat().st_size // 2)

    def attempts(self, seconds: float = 300) -> list[str]:
        """Waits for the end. Returns what rank 0 printed in each attempt."""
        assert self.process.wait(seconds) == 0, self.messages
        log = (self.output / "node_0" / "train.log").read_text(errors="replace")
        return re.split(r"(?m)^---- .* ----$", log)[1:]
