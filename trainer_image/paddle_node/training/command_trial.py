"""Runs a command for a few steps in one pod's processes, shows its output, and says which of the
job's patterns match its lines.

    python -m paddle_node.training.command_trial <steps> <seconds>

The environment is that of a pod of a job with one pod. Ends with 0 when it has seen enough steps,
the time is over, or the command has ended with 0. If none of the job's patterns has matched a line
by then, it ends with 1 and a sentence. Otherwise it ends with 2 and a sentence.
"""

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from paddle_node import contract, environment
from paddle_node.contract import ExitCode
from paddle_node.environment import Attempt
from paddle_node.failure import Failure, leave
from paddle_node.runtimes import launch, remarks
from paddle_node.staging import preparation
from paddle_node.volume.steps import LineReader

MOST_SHOWN = 3
"""Lines of a kind that are shown."""
LINE_LENGTH = 160
"""Characters of a shown line."""
_NUMBER = r"\b(?:{})\b\W{{0,4}}[-+]?\d"
_CUT = re.compile(r"\.?\d*[eE][-+]?\d+")
"""What is left of a number behind a pattern that knows no exponents."""
KINDS = ("loss", "step", "epoch", "lr", "ips")
"""Metrics whose lines are sought where the job names none."""


UNMATCHED = 1
"""Exit code: the command ran, and no pattern matched a line."""


class Matches:
    """How many lines each pattern has matched, and which lines look as if they should match."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._reader = LineReader(patterns)
        self._texts = dict(patterns)
        self.lines = 0
        self.matched = dict.fromkeys(patterns, 0)
        self._cut: dict[str, str] = {}
        self._words = {
            name: "|".join({name, *re.findall(r"[A-Za-z]{3,}", patterns.get(name, ""))})
            for name in patterns or KINDS
        }
        self._alike: dict[str, list[str]] = {name: [] for name in patterns or KINDS}

    @property
    def steps(self) -> int:
        """Steps that were seen: lines that tell one, else lines that tell anything."""
        return self.matched.get("step") or max(self.matched.values(), default=0)

    def read(self, line: str) -> None:
        self.lines += 1
        for name, match in self._reader.matches(line).items():
            self.matched[name] += 1
            if rest := _CUT.match(line, match.end(1)):
                self._cut.setdefault(name, f"{match[1]} of {match[1]}{rest[0]}")
        for name, lines in self._alike.items():
            if len(lines) < MOST_SHOWN and re.search(_NUMBER.format(self._words[name]), line, re.I):
                lines.append(line.strip()[:LINE_LENGTH])

    def describe_unmatched(self) -> str:
        """Returns a sentence if there are patterns and none has matched; else nothing."""
        if not self.matched or any(self.matched.values()):
            return ""
        return (
            f"no pattern of metrics matched any of {self.lines} lines: the job would show neither "
            "step nor loss; correct metrics, or let the command run longer (--time-limit)"
        )

    def describe(self) -> list[str]:
        """Returns a sentence for each pattern."""
        if not self._texts:
            alike = [line for name in KINDS for line in self._alike[name]]
            alike = list(dict.fromkeys(alike))[:MOST_SHOWN]
            return [f"metrics is not set; these lines look like steps: {_quote(alike)}"] * bool(
                alike
            )
        sentences = []
        for name, text in self._texts.items():
            sentence = f"metrics.{name}: {text} matched {self.matched[name]} of {self.lines} lines"
            if not self.matched[name]:
                alike = self._alike[name]
                sentence += (
                    f"; these look like {name}: {_quote(alike)}"
                    if alike
                    else f"; none has {name} and a number"
                )
            elif cut := self._cut.get(name):
                sentence += f", and took {cut}: ([-+0-9.e]+) takes the whole number"
            sentences.append(sentence)
        return sentences


def _quote(lines: list[str]) -> str:
    return " | ".join(lines)


def run(steps: int, seconds: float) -> str:
    """Runs the command, and prints what it prints. Returns a sentence if no pattern matched. Raises
    `Failure` if the command fails.
    """
    pod = environment.parse()
    pod = replace(
        pod,
        program=contract.path(contract.UNPACKED, pod.environ),
        folder=replace(pod.folder, inputs=preparation.inputs_of(pod.folder)),
    )
    attempt = Attempt(1)
    processes = launch.processes(pod, ["127.0.0.1"], attempt)
    matches = Matches(pod.command.metrics)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    children = []
    began = time.time()
    deadline = time.monotonic() + seconds
    for process in processes:
        if process.link is not None:
            (process.link[1] / "output").mkdir(parents=True, exist_ok=True)
            process.link[0].parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                process.link[0].symlink_to(process.link[1])
        child = subprocess.Popen(
            process.argv,
            env=dict(process.environ),
            cwd=process.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        children.append(child)
        threading.Thread(target=_read, args=(child, lines), daemon=True).start()
    ending, left = f"the {seconds:g} s are over", len(children)
    try:
        while left and (remaining := deadline - time.monotonic()) > 0:
            try:
                line = lines.get(timeout=remaining)
            except queue.Empty:
                break
            if line is None:
                left -= 1
                continue
            print(line, flush=True)
            matches.read(line)
            if matches.steps >= steps:
                ending = f"{steps} steps were seen"
                break
        codes = [child.wait(timeout=5) for child in children] if not left else []
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    if any(codes):
        raise Failure(ExitCode.BAD_SETTING, f"the command ended with {next(filter(None, codes))}")
    print(f"---- {'the command ended with 0' if codes else f'stopped: {ending}'}")
    print("\n".join(matches.describe()))
    if outside := remarks.outside_output(pod.program, began):
        print(f"of the command, {outside}")
    for sentence in remarks.unmatched(pod, attempt.number, {}):
        print(f"until then, {sentence}")
    return matches.describe_unmatched()


def _read(child: subprocess.Popen[str], lines: "queue.SimpleQueue[str | None]") -> None:
    for line in child.stdout or ():
        lines.put(line.rstrip("\n"))
    lines.put(None)


def main() -> int:
    """Returns the exit code."""
    try:
        unmatched = run(int(sys.argv[1]), float(sys.argv[2]))
    except Failure as failure:
        print(failure.sentence, file=sys.stderr)
        return failure.code
    if unmatched:
        print(unmatched, file=sys.stderr)
        return UNMATCHED
    return ExitCode.DONE


if __name__ == "__main__":
    leave(main())
