"""The Pythons of a pod's command: which of them train, and how each ended.

A command may be a script: its exit code says little of the programs that it ran. A start-up hook
(hook/sitecustomize.py) connects each Python below the agent to a socket of the agent; the kernel
says who is connected, and the agent takes only its own descendants. What a Python did decides how
much its end counts: only those with the strongest evidence in the pod are its ranks.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from paddle_node import background, command_line, contract
from paddle_node.agent import process_table, world
from paddle_node.agent.process_table import Entry, Watch
from paddle_node.contract import FAIL_JOB, ExitCode, Variable
from paddle_node.environment import PodEnvironment
from paddle_node.runtimes import HOOK
from paddle_node.runtimes.attempt_output import OUTPUT

OTHER, OWN, SAVED, IMPORTED, TRAINED = range(5)
"""Evidence that a Python is a rank: it runs a file of the program; it or what it started has
written into `output/`; it has imported the distributed part of Paddle or torch; it has made a step,
or imported that and is connected to the job's pods.
"""
STARTING = 10.0
"""Seconds in which a Python that can have the hook connects."""
TOLD = {128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP, None}
"""Exit codes of what was told to end; Linux before 6.15 does not tell that of most signals."""
MANY = 100
"""Steps after which one that trains alone is no mere try; the hook tells of them."""
UNFLUSHED = 120
"""Python's exit code if all went well, but nobody read its last lines."""
MAY_START = {
    "ash", "bash", "busybox", "conda", "csh", "dash", "env", "expect", "fish", "flock", "java",
    "ksh", "make", "mamba", "nice", "ninja", "node", "nohup", "parallel", "perl", "php", "ruby",
    "script", "setsid", "sh", "stdbuf", "tcsh", "time", "timeout", "uv", "xargs", "zsh",
}  # fmt: skip
"""Programs that may start training later."""
STACKS = 2
"""SIGRTMAX minus this signal makes a Python write where its threads are."""
LISTEN = 0.5
"""Seconds for that."""
LONGEST_STACKS = 1 << 20
MOST_LOCATED = 8
INSTALLED = re.compile(r"/(site|dist)-packages/|/lib/python\d|/bin/[^/]+$|^/(usr|opt)/")
"""Scripts that are not the program's, wherever it has copied its own."""
CHILD = "child of "
UNSEEN = "no Python was seen to train: its exit code alone says that it is done"
LONGEST = 120
"""Characters of a command line in a sentence."""


@dataclass(eq=False)
class Python:
    """A Python below the agent. `began` and `ended` are places in the order of what was seen."""

    entry: Entry
    words: str
    key: str
    """What it runs, without the arguments."""
    arguments: tuple[str, ...]
    rank: tuple[str, str]
    above: tuple["Python", ...]
    """Those that it descends from."""
    line: tuple[int, ...]
    """The process ids of all that it descends from below the agent, nearest first."""
    own: bool
    """It runs a file of the program, or lines of the script."""
    began: int
    watch: Watch
    session: int = 0
    hooked: bool = False
    forked: bool = False
    saved: bool = False
    imported: bool = False
    joined: bool = False
    """It was connected to a pod of the job."""
    listens: bool = False
    steps: int = 0
    """`MANY` from so many on; before that, 1 from the first on."""
    told: bool = False
    """It told its exit code itself."""
    static: bool = False
    """It has built a static program, whose steps nobody sees."""
    ended: int | None = None
    at: float = 0.0
    """When its end was seen."""
    code: int | None = None
    """128 + the signal's number if a signal ended it; None: it runs, or nobody knows."""
    error: str = ""
    """The exception or the words with which it ended."""
    uncaught: bool = False
    """`error` is an exception that nothing caught."""
    fell: bool = False
    """`error` ended the thread that made its steps."""
    thread: str = ""
    """The exception that ended another of its threads."""

    @property
    def level(self) -> int:
        """The evidence that it is a rank."""
        inherited = self.forked and any(python.imported for python in self.above)
        if self.steps or (self.joined and (self.imported or inherited)):
            return TRAINED
        if self.imported:
            return IMPORTED
        return SAVED if self.saved else OWN if self.own else OTHER

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return _age(self.entry)

    @property
    def went_well(self) -> bool:
        """Whether it has done all that it was to do."""
        if self.ended is None or (self.code == 0 and self.error.startswith("sys.exit(")):
            return False
        return (self.code == 0 and not self.fell) or (self.code == UNFLUSHED and not self.error)

    def __str__(self) -> str:
        return f"process {self.entry.pid} ({self.words})"


@dataclass
class Verdict:
    """What the Pythons of a pod show once its first processes have ended with 0."""

    waits_for: list[str] = field(default_factory=list)
    """What may still train."""
    failed: list[Python] = field(default_factory=list)
    """Ranks that did not do what they were to do, those that ended first first."""
    doubts: list[str] = field(default_factory=list)
    """What went wrong beside the training, or could not be seen."""


def judge(
    pythons: Collection[Python],
    others: Collection[tuple[Entry, str]] = (),
    loops: Collection[int] = (),
    compiled: bool = False,
) -> Verdict:
    """Judges the Pythons of a pod. `others`: what else runs, with the files of the programs;
    `loops`: those of them that start the same again and again; `compiled`: a program of no Python,
    which is no installed one, was seen.
    """
    top = max((python.level for python in pythons), default=OTHER)
    ranks = [python for python in pythons if python.level == top]
    if not top:  # An installed tool trains, if any Python does.
        tools = [] if compiled else ranks
        ranks = [tool for tool in tools if not tool.listens and not tool.key.startswith(CHILD)]
    ended = [python for python in pythons if python.ended is not None]
    verdict = Verdict()
    for python in pythons:
        begins = python.forked and top < SAVED and python.age <= STARTING  # A daemon's last fork.
        own = python.level >= OWN or python in ranks or begins
        if python.ended is None and own and not _serves(python, ended):
            verdict.waits_for.append(str(python))
    fallen = [
        python
        for python in ended
        if not python.went_well and not _tried_again(python, ended) and not _was_ended(python)
    ]
    fallen.sort(key=lambda python: python.ended or 0)
    failed = [rank for rank in fallen if rank in ranks and not _goes_on(rank, ended)]
    verdict.failed = [rank for rank in failed if _is_seen(rank)]
    verdict.doubts = [
        f"the end of {python} was not seen (docs/pod.md)"
        if python in failed
        else f"{python.words} ended with {describe_code(python.code)}"
        + (f": {python.error}" if python.error else "")
        for python in fallen
        if (python in failed and python not in verdict.failed)
        or (python not in failed and _is_seen(python) and _tells(python))
    ]
    verdict.doubts += [
        f"a thread of {python.words} ended with {python.thread}"
        for python in ended
        if python.thread and python.level >= OWN and python not in failed
    ]
    verdict.doubts += [] if ranks else [UNSEEN]
    parents = {rank.entry.parent for rank in failed}
    trained = any(python.saved or python.level == TRAINED for python in ended)
    well = not ranks or any(python.went_well for python in ended if python in ranks)
    for entry, file in others:
        name = PurePosixPath(file).name
        began = trained or (well and entry.pid in loops)
        starts = name in MAY_START and (entry.pid in parents or not began)
        if entry.state not in "ZX" and (starts or (not ranks and _is_own(file))):
            verdict.waits_for.append(f"process {entry.pid} ({name})")
    return verdict


def _serves(python: Python, ended: Iterable[Python]) -> bool:
    """Whether one that still runs only serves others, one of which went well."""
    if python.level == TRAINED:
        return False
    for other in ended:
        if not other.went_well or other.key == python.key or other.level < OWN:
            continue
        alike = other.level == python.level
        earlier = python.began < other.began
        left = python.level < SAVED and python.age > STARTING
        detached = python.level < IMPORTED and python.session != other.session
        if (
            (other.level == TRAINED and python.began < (other.ended or 0))
            or (left and (other.saved or other.level == TRAINED))
            or (other in python.above and detached)
            or (alike and earlier and python.listens and not other.listens)
            or (alike and earlier and other.joined and not python.joined)
        ):
            return True
    return False


def _tried_again(python: Python, ended: Iterable[Python]) -> bool:
    """Whether it went well when it was started again: by the same Python, or as it was."""
    return any(
        (other.key, other.rank) == (python.key, python.rank)
        and other.went_well
        and other.began > (python.ended or 0)
        and (
            other.arguments == python.arguments
            or (bool(python.above) and other.above == python.above)
        )
        for other in ended
    )


def _was_ended(python: Python) -> bool:
    """Whether the Python that started it ended it, and went well: a pool of processes."""
    if python.code not in TOLD or (python.code is None and python.steps):
        return False
    return any(other.went_well for other in python.above)


def _goes_on(rank: Python, ended: Iterable[Python]) -> bool:
    """Whether the program went well without this one: the script told it to end, or another file
    ran after it, where nothing shows which of them trains.
    """
    others = [other for other in ended if other.went_well and other.level == rank.level]
    if rank.code in TOLD:
        return not rank.steps and bool(others)
    if rank.level > OWN or rank.code is None or rank.code > 128:
        return False
    return any(other.key != rank.key and other.began > (rank.ended or 0) for other in others)


def _is_seen(python: Python) -> bool:
    """Whether anybody saw how it ended."""
    return python.hooked or python.code is not None


def _tells(python: Python) -> bool:
    """Whether the end of what is no rank says something: it is the program's own, or a forked child
    that fell, and has not become another program.
    """
    if python.level >= OWN:
        return True
    code = python.code or 0
    signaled = code > 128 and code != 128 + signal.SIGTERM
    return python.forked and (signaled or (python.told and code > 0))


def _is_own(file: str) -> bool:
    """Whether a program is no installed one."""
    return bool(file) and not INSTALLED.search(file)


def _age(entry: Entry) -> float:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - entry.started / os.sysconf("SC_CLK_TCK")


def find_place(stacks: str) -> str:
    """Returns where a program is: what its main thread calls, and its own line that does so, by
    what faulthandler wrote; empty: that is not to be seen.
    """
    for thread in re.split(r"(?m)^(?:Current thread|Thread) .*:$", stacks):
        frames = re.findall(r'(?m)^  File "(.*)", line (\d+) in (.*)$', thread)
        if frames and frames[-1][2] == "<module>":
            own = [frame for frame in frames if not re.search(r"/lib/python\d|<frozen", frame[0])]
            file, line, name = (own or frames)[0]
            what = frames[0][2] if own and own[0] != frames[0] else name
            called = f"{what}, " if what != "<module>" else ""
            return f"{called}{PurePosixPath(file).name}:{line}"
    return ""


def describe_code(code: int | None) -> str:
    """Returns an exit code in words."""
    if code is None:
        return "no exit code that anybody saw"
    with contextlib.suppress(ValueError):
        if code > 128 and code != ExitCode.TERMINATED:
            return f"{code} ({signal.Signals(code - 128).name})"
        if code in FAIL_JOB or code == ExitCode.VOLUME_FULL:
            return f"{code} ({ExitCode(code).name})"
    return str(code)


class Ranks:
    """The Pythons below this agent. Runs in the event loop's thread; `on_step` is called there for
    the first step of each.
    """

    def __init__(self, pod: PodEnvironment, on_step: Callable[[Python], object]) -> None:
        name = os.urandom(12).hex()
        self.folder = pod.home / "python" / name
        self._pod = pod
        self._on_step = on_step
        self._seen: dict[int, Python] = {}
        self.all: list[Python] = []
        """All of the attempt, in the order in which they began."""
        self._others: list[tuple[Entry, str]] = []
        self._compiled = False
        """Whether a program of no Python, which is no installed one, was seen."""
        self._started: dict[tuple[int, str], set[tuple[int, int]]] = {}
        """What each process that may start training was seen to start, by its command line."""
        self._order = 0
        self._open: dict[socket.socket, Python] = {}
        self._addresses: frozenset[str] = frozenset()
        self.met: set[int] = set()
        """Processes of this pod that have been connected to another pod."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{name}")
        self._listener.listen(1024)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self.receive)

    def begin(self, pod: PodEnvironment, addresses: Collection[str]) -> None:
        """Forgets the last attempt, of which no process is left. `addresses`: those of all pods."""
        self.receive()
        for python in self.all:
            python.watch.close()
        for connection in list(self._open):
            self._close(connection)
        self._seen.clear()
        self._started.clear()
        self.all, self._others, self.met = [], [], set()
        self._compiled = False
        self._addresses = frozenset(addresses)
        self._pod = pod
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            output = contract.path(contract.ATTEMPT, pod.environ) / OUTPUT
            (self.folder / OUTPUT).symlink_to(output)

    def close(self) -> None:
        """Takes no more connections."""
        asyncio.get_running_loop().remove_reader(self._listener)
        for connection in list(self._open):
            self._close(connection)
        self._listener.close()

    def is_alone(self, steps: int = 1) -> bool:
        """Whether a Python has made so many steps, and no trainer, nor what started it or was
        started by it, has been connected to another pod.
        """
        trainers = [python for python in self.all if python.level == TRAINED]
        return any(trainer.steps >= steps for trainer in trainers) and not any(
            self._has_met(trainer) for trainer in trainers
        )

    def _has_met(self, python: Python) -> bool:
        pid = python.entry.pid
        return bool(self.met & {pid, *python.line}) or any(
            pid in other.line and other.entry.pid in self.met for other in self.all
        )

    def judge(self) -> Verdict:
        """Judges what was seen until now; `look` sees what is there."""
        loops = {pid for (pid, _), entries in self._started.items() if len(entries) > 1}
        return judge(self.all, self._others, loops, self._compiled)

    def list_codes(self) -> list[int | None]:
        """Returns the exit codes of all that have ended."""
        self.receive()
        for python in self.all:
            self._refresh(python)
        return [python.code for python in self.all if python.ended is not None]

    def list_running(self) -> list[Python]:
        """Returns the ranks that run."""
        top = max((python.level for python in self.all), default=OTHER)
        return [
            python for python in self.all if python.ended is None and python.level == top > OTHER
        ]

    def find_failed(self, pid: int, alone: bool) -> Python | None:
        """Returns the Python that says why a process ended: that process itself, or, if it is
        `alone` in the pod, the first one below it that failed.
        """
        self.receive()
        own = self._seen.get(pid)
        if own is not None and own.error:
            return own
        ended = [python for python in self.all if python.error and python.ended is not None]
        failed = [python for python in ended if not python.went_well]
        return min(failed, key=lambda python: python.ended or 0, default=None) if alone else None

    def has_stepped(self) -> bool | None:
        """Whether any Python has made a step with an optimizer; None: nobody can know, because none
        of them has imported Paddle or torch, or one had no hook.
        """
        ranks = [python for python in self.all if python.level >= IMPORTED]
        if any(python.steps for python in self.all):
            return True
        return False if ranks and all(rank.hooked and not rank.static for rank in ranks) else None

    async def locate(self) -> str:
        """Returns in which line of the program each rank is, in words; empty: none says so."""
        ranks = [rank for rank in self.list_running() if rank.hooked]
        for rank in ranks:
            with contextlib.suppress(OSError):
                os.kill(rank.entry.pid, signal.SIGRTMAX - STACKS)
        await asyncio.sleep(LISTEN if ranks else 0.0)
        places = []
        for rank in ranks[:MOST_LOCATED]:
            text = ""
            with contextlib.suppress(OSError):
                file = self.folder / f"{rank.entry.pid}.stacks"
                text = file.read_text(errors="replace")[:LONGEST_STACKS]
            if place := find_place(text):
                number = next(filter(None, reversed(rank.rank)), "")
                places.append(f"rank {number} is in {place}" if number else f"it is in {place}")
        return "; ".join(places)

    # What the hook tells.

    def receive(self) -> None:
        """Takes in all that Pythons have sent, in the order in which they did."""
        while True:
            for connection in list(self._open):
                self._read(connection)
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # What ended before this one began.
            for earlier in list(self._open):
                self._read(earlier)
            self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid = struct.unpack("3i", peer)[0]
        entry = process_table.read_entry(pid)
        if entry is None or not process_table.find_ancestors(pid, os.getpid()):
            connection.close()
            return
        python = self._add(entry)
        python.hooked = True
        connection.setblocking(False)
        self._open[connection] = python
        asyncio.get_running_loop().add_reader(connection, self._read, connection)
        with contextlib.suppress(OSError):
            connection.send(b"k")

    def _read(self, connection: socket.socket) -> None:
        python = self._open.get(connection)
        while python is not None:
            try:
                packet = connection.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._close(connection)
                if python.code is None and self._seen.get(python.entry.pid) is python:
                    # Killed, unless it only goes on as another program.
                    self._end(python, None)
                return
            self._take(python, packet)

    def _take(self, python: Python, packet: bytes) -> None:
        kind, _, text = packet.decode(errors="replace").partition(" ")
        if len(packet) == 1:
            python.told = True
            self._end(python, packet[0])
        elif kind in ("imported", "static"):
            setattr(python, kind, True)
        elif kind == "saves":
            for saver in (python, *python.above):
                saver.saved = True
        elif kind in ("step", "steps"):
            python.steps = max(python.steps, 1 if kind == "step" else MANY)
            self._on_step(python)
        elif kind == "peer":
            joined, met = world.is_inside(
                *text.partition(" ")[::2], self._addresses, self._pod.pod_ip
            )
            python.joined = python.joined or joined
            self.met |= {python.entry.pid} if met else set()
        elif kind == "forked":
            parent = self._seen.get(python.entry.parent)
            python.forked = True
            python.key = f"{CHILD}{parent.key if parent else python.entry.parent}"
            python.own = python.imported = False
        elif kind in ("error", "words"):
            python.error, python.uncaught = text, kind == "error"
        elif kind == "fell":
            python.error, python.uncaught, python.fell = text, True, True
        elif kind == "thread":
            python.thread = text

    def _end(self, python: Python, code: int | None) -> None:
        if python.ended is None:
            python.at = time.monotonic()
            self._order += 1
            python.ended = self._order
        if python.code is None:
            python.code = code

    def _close(self, connection: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(connection)
        self._open.pop(connection, None)
        connection.close()

    def _add(self, entry: Entry) -> Python:
        """Adds a Python that was not known as what it is now."""
        earlier = self._seen.get(entry.pid)
        if earlier is not None and earlier.entry.started == entry.started:
            if not earlier.hooked:
                return earlier
            if earlier.code is None and earlier in self.all:
                self.all.remove(earlier)  # It has become another program.
        words = process_table.read_list(entry.pid, "cmdline")
        variables = process_table.read_variables(entry.pid)
        line = process_table.find_ancestors(entry.pid, os.getpid())
        above = tuple(python for pid in line if (python := self._seen.get(pid)) is not None)
        folders = (process_table.read_link(entry.pid, "cwd"), variables.get("PYTHONPATH", ""))
        key, arguments, own = self._identify(words, *folders)
        if not key and above:  # Python starts processes of its own by -c.
            key = f"{CHILD}{above[0].key}"
        elif not key:
            key, own = " ".join(words[1:]), True
        session = 0
        with contextlib.suppress(OSError):
            session = os.getsid(entry.pid)
        self._order += 1
        python = Python(
            entry,
            " ".join(words)[:LONGEST],
            key,
            tuple(arguments),
            (variables.get(Variable.RANK, ""), variables.get(Variable.LAUNCHED_RANK, "")),
            above,
            line,
            own,
            self._order,
            Watch(entry),
            session,
        )
        self._seen[entry.pid] = python
        self.all.append(python)
        return python

    def _identify(self, words: list[str], folder: str, path: str) -> tuple[str, list[str], bool]:
        """Returns what tells a Python's program from others, its arguments, and whether it is the
        user's own. `path`: PYTHONPATH.
        """
        _, module, rest = command_line.split_python(["python", *words[1:]])
        program = os.path.realpath(self._pod.program)
        if module:
            files = [Path(folder, base, *module.split(".")) for base in ["", *path.split(":")]]
            own = any(
                file.is_relative_to(program)
                and (file.with_suffix(".py").is_file() or file.is_dir())
                for file in map(Path, map(os.path.realpath, files))
            )
            runs = any(word.endswith(".py") and Path(folder, word).is_file() for word in rest)
            return f"-m {module}", rest, own or runs  # Such as `-m cProfile train.py`.
        if not rest or rest[0].startswith(("-", "/dev/")):
            return "", [], False
        script = Path(os.path.realpath(Path(folder, rest[0])))
        own = script.is_relative_to(program) or _is_own(str(script))
        return str(script), rest[1:], own

    # What Linux tells.

    def note_exit(self, pid: int, code: int) -> None:
        """Takes in the exit code of a process that this agent has reaped."""
        self.receive()
        python = self._seen.get(pid)
        if python is not None and python.code is None and python.watch.has_ended():
            self._end(python, code)

    async def look(self, but: Collection[int]) -> list[Entry]:
        """Looks at the processes below this one, except `but` and below, and returns them."""
        found, sockets = await background.call(partial(self._scan, but, self._is_joined()))
        self.met |= sockets.met
        self.receive()
        self._others = []
        for entry, file in found:
            name = PurePosixPath(file).name
            python = self._seen.get(entry.pid)
            known = python is not None and python.entry.started == entry.started
            if name.startswith(("python", "pypy")) and entry.state not in "ZX":
                if not known and not self._is_starting(entry):
                    known, python = True, self._add(entry)
                elif not known:
                    self._others.append((entry, "sh"))  # Nobody knows yet what it is.
            elif not known:
                self._others.append((entry, file))
                self._compiled = self._compiled or _is_own(file)
            if known and python is not None:
                if not python.hooked and not python.imported and _has_imported(entry.pid):
                    python.imported = True
                python.joined = python.joined or entry.pid in sockets.connected
                python.listens = python.listens or entry.pid in sockets.listening
        may_start = {entry.pid for entry, file in found if PurePosixPath(file).name in MAY_START}
        for entry, _ in self._others:
            if entry.parent not in may_start or entry.pid in may_start:
                continue
            if words := " ".join(process_table.read_list(entry.pid, "cmdline")):
                started = self._started.setdefault((entry.parent, words), set())
                started.add((entry.pid, entry.started))
        for python in self.all:
            self._refresh(python)
        return [entry for entry, _ in found]

    def _is_joined(self) -> bool:
        """Whether all that may train are seen to be connected: their sockets show nothing more."""
        running = [python for python in self.all if python.ended is None and python.level >= OWN]
        met = bool(self.met) or not self._pod.trainer_id  # Peers come to trainer 0.
        return (
            met and bool(running) and all(rank.level == TRAINED and rank.joined for rank in running)
        )

    def _scan(
        self, but: Collection[int], joined: bool
    ) -> tuple[list[tuple[Entry, str]], world.Sockets]:
        found = [
            (entry, process_table.read_link(entry.pid, "exe"))
            for entry in process_table.descendants(os.getpid(), but)
        ]
        pids = [] if joined else [entry.pid for entry, _ in found]
        return found, world.find_sockets(pids, self._addresses, self._pod.pod_ip)

    def _refresh(self, python: Python) -> None:
        """Takes in how a Python ended that did not say so itself."""
        if python.code is None and python.watch.has_ended():
            self._end(python, python.watch.read_code())
        elif python.code is None and python.ended is not None:
            # It closed the connection, or is another program now.
            python.ended, python.hooked = None, False

    @staticmethod
    def _is_starting(entry: Entry) -> bool:
        """Whether a Python will still connect, or is gone."""
        words = process_table.read_list(entry.pid, "cmdline")
        if words == [""]:
            return True
        variables = process_table.read_variables(entry.pid)
        path = variables.get("PYTHONPATH", "").split(":")
        if _age(entry) > STARTING or HOOK not in path or Variable.WITNESS not in variables:
            return False
        flags = "".join(
            word.partition("c")[0]
            for word in command_line.split_python(["python", *words[1:]])[0][1:]
            if word[:1] == "-" and word[:2] not in ("--", "-W", "-X")
        )
        if set(flags) & set("IES"):
            return False
        folder, before = process_table.read_link(entry.pid, "cwd"), path[: path.index(HOOK)]
        with contextlib.suppress(OSError):  # It may not look there.
            return not any(Path(folder, base, "sitecustomize.py").is_file() for base in before)
        return False


def _has_imported(pid: int) -> bool:
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text()
        return "/libpaddle" in maps or "/libtorch_python" in maps
    return False
