"""`paddle-aws rehearse`, run as a user runs it: in a folder of one's own, with a second terminal.

Each job is the one of examples/launch: two pods with two processes under Paddle's launcher.
"""

import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import pytest
import yaml
from paddle_node.volume.job_folder import JobFolder

import paddle_aws
from paddle_settings.file import cache_path
from tests.image.test_program_packages import wheel

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
PADDLE_AWS = (sys.executable, "-P", "-m", "paddle_aws.operations.main")


class Terminal:
    """A user's folder with a job file, and commands in it."""

    def __init__(self, folder: Path, epochs: int = 12, **settings: object) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.job_file = folder, folder / "job.yaml"
        program = folder / "program"
        shutil.copytree(PROJECT / "examples/launch", program)
        subprocess.run([sys.executable, program / "make_sample.py", folder / "a.csv"], check=True)
        self.settings = {
            **yaml.safe_load((PROJECT / "examples/launch/job.yaml").read_text()),
            "program": {"folder": "./program"},
            "data": {"source": "a.csv", "shared": True},
            **settings,
        }
        self.train_for(epochs)

    def require(self, requirements: list[str], modules: str, **settings: str) -> None:
        """Makes the program import what it requires."""
        self.settings["program"] = {
            "folder": "./program",
            "requirements": requirements,
            **settings,
        }
        text = (PROJECT / "examples/launch/train.py").read_text()
        text = text.replace("import argparse\n", f"import argparse\nimport {modules}\n")
        (self.folder / "program/train.py").write_text(text)
        self.job_file.write_text(yaml.safe_dump(self.settings))

    def train_for(self, epochs: int) -> None:
        """Writes the job file."""
        command = str(self.settings["command"])
        self.settings["command"] = re.sub(r"--epochs \d+", f"--epochs {epochs}", command)
        self.job_file.write_text(yaml.safe_dump(self.settings))

    def start(
        self, *words: str, stdout: IO[str] | int = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PADDLE_AWS, *words],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        output, _ = process.communicate()
        assert process.returncode == code, output
        return output

    @property
    def volume(self) -> JobFolder:
        return JobFolder(self.folder / ".rehearsal/volume" / str(self.settings["name"]))

    def wait_for(self, happened: Callable[[], object], process: "subprocess.Popen[str]") -> None:
        while not happened():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)

    def steps(self) -> int:
        """Returns how many lines of metrics rank 0 has written."""
        file = self.volume.steps(0, 0)
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def process_of(self, rank: str) -> int:
        logs = "".join(file.read_text() for file in self.folder.glob(".rehearsal/logs/*-0-*.log"))
        return int(re.findall(rf"trainer {rank} is process (\d+)", logs)[-1])


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "mine", 60)


@pytest.mark.long
def test_a_second_terminal_sees_and_ends_it_and_a_kept_volume_trains_on(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Archives begin empty, the environments of Paddle are this machine's.
    environments = cache_path("environments").parent
    environments.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = cache_path("environments").parent
    cache.parent.mkdir(parents=True)
    cache.symlink_to(environments)
    terminal.require(["einops", "pyarrow"], "einops, pyarrow")
    shown = terminal.folder / "shown"
    with shown.open("w") as stdout:
        rehearsal = terminal.start("rehearse", "--no-try", stdout=stdout)
    terminal.wait_for(lambda: terminal.steps() >= 3, rehearsal)
    # Its own terminal shows how far each attempt is, and why the first ended.
    terminal.wait_for(
        lambda: re.search(r"attempt 1, step \d+, loss 0\.\d+", shown.read_text()), rehearsal
    )
    following = terminal.start("logs", "--follow", "--rank", "0")
    status = json.loads(terminal.run("status", "--json").partition("\n")[2])
    assert (status["state"], status["training"]["active"]) == ("running", 2)
    assert status["progress"]["attempt"] == 1 and 0 < status["progress"]["loss"] < 1
    os.kill(terminal.process_of("0.1"), signal.SIGKILL)
    attempts = terminal.volume.run_state / "attempts.json"
    terminal.wait_for(lambda: attempts.read_text().count('"number"') == 2, rehearsal)
    terminal.wait_for(lambda: "attempt 2: all 2 pods" in shown.read_text(), rehearsal)
    ended = terminal.run("cancel")
    assert re.search(r"job launch is ended \(Job launch-", ended)
    rehearsal.wait()
    output = shown.read_text()
    assert rehearsal.returncode == 1 and "was cancelled: volume, logs and record stay" in output
    assert "Paddle 3.3 with 2 requirements of the program" in output
    sentences = " ".join(output.split())
    assert "attempt 1 ends: trainer 0.1 ended with 137 (SIGKILL)" in sentences
    assert "attempt 2: all 2 pods are here, training starts from output/epoch-" in sentences
    lines, _ = following.communicate(timeout=30)
    assert following.returncode == 0
    assert "trainer 0 | [trainer 0.0] epoch 0: " in lines
    assert "trainer 0 | [agent 0] attempt 2: all 2 pods are here" in lines
    assert "launch failed: it was cancelled" in terminal.run("status")
    assert "nothing to end" in terminal.run("cancel")

    # More epochs on what the cancelled one left; then other data, which begins anew, and packages
    # of the volume.
    newest = max(int(file.stem[-3:]) for file in terminal.volume.output.glob("epoch-*.pdparams"))
    terminal.train_for(newest + 3)
    output = " ".join(terminal.run("rehearse", "--no-try", "--volume", "keep").split())
    assert f"training starts from output/epoch-{newest:03d}.pdparams" in output
    assert re.search(r"it is there already: einops==[\d.]+, pyarrow==[\d.]+", output)
    log = next(terminal.folder.glob(".rehearsal/logs/launch-*-0-*.trainer.log")).read_text()
    epochs = re.findall(r"epoch (\d+): 1600 records", log)
    assert [int(epoch) for epoch in epochs] == [newest + 1, newest + 2]
    rows = (terminal.folder / "a.csv").read_text().splitlines(keepends=True)
    (terminal.folder / "a.csv").write_text("".join(rows[: len(rows) // 2]))
    wheels = terminal.folder / ".rehearsal/volume/wheels"
    wheels.mkdir()
    wheel(wheels, "tiny", "1.0")
    terminal.require(["tiny"], "tiny", wheels="/home/jobpath/wheels")
    terminal.train_for(2)
    output = " ".join(terminal.run("rehearse", "--no-try", "--volume", "keep").split())
    assert "training starts from the beginning" in output and "MB: tiny==1.0" in output
    log = next(terminal.folder.glob(".rehearsal/logs/launch-*-0-*.trainer.log")).read_text()
    assert "epoch 1: 800 records" in log


def test_an_interrupted_one_keeps_all_and_a_killed_one_leaves_no_process(
    terminal: Terminal, processes: Callable[[Path], list[int]]
) -> None:
    for number, said in (
        (signal.SIGINT, "the rehearsal was interrupted"),
        (signal.SIGKILL, "the rehearsal was killed"),
    ):
        rehearsal = terminal.start("rehearse", "--no-try")
        terminal.wait_for(lambda: terminal.steps() >= 2, rehearsal)
        os.kill(rehearsal.pid, number)
        output, _ = rehearsal.communicate()
        assert number == signal.SIGKILL or (
            rehearsal.returncode == 130 and "interrupted: no process is left" in output
        )
        while processes(terminal.folder):
            time.sleep(0.1)
        assert f"launch failed: {said}" in terminal.run("status")
        assert "epoch 0: " in terminal.run("logs")
        assert terminal.steps() >= 2
        shutil.rmtree(terminal.folder / ".rehearsal")


SAVES = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
os.makedirs("output", exist_ok=True)
for step in range(6000):
    print("step", step, "loss 0.5", flush=True)
    time.sleep(0.1)
    if told:
        open("output/saved-" + os.environ["RANK"], "w").write(f"{step} after {len(told)}")
        sys.exit(143)
"""


@pytest.mark.parametrize("lines", ["python saves.py | tee log", "nohup python saves.py &\nwait"])
def test_cancel_lets_what_a_script_started_save(tmp_path: Path, lines: str) -> None:
    terminal = Terminal(tmp_path / "mine")
    (terminal.folder / "program/saves.py").write_text(SAVES)
    (terminal.folder / "program/run.sh").write_text(f"{lines}\n")
    steps = {"metrics": {"step": r"step (\d+)", "loss": "loss (.*)"}, "apart": True}
    own = {"name": "saves", "trainers": 2, "program": {"folder": "./program"}}
    terminal.settings = {**own, "command": "bash run.sh", **steps}
    terminal.job_file.write_text(yaml.safe_dump(terminal.settings))
    with (tmp_path / "shown").open("w") as stdout:
        rehearsal = terminal.start("rehearse", "--no-try", stdout=stdout)
    terminal.wait_for(terminal.steps, rehearsal)
    assert "job saves is ended" in terminal.run("cancel", "--rehearsal")
    assert rehearsal.wait() == 1
    saved = list(terminal.volume.root.glob("output/attempts/*-1/output/saved-*"))
    assert len(saved) == 2, (tmp_path / "shown").read_text()
    assert all(re.fullmatch(r"\d+ after 1", file.read_text()) for file in saved)


@pytest.mark.long
def test_from_python_on_data_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(tmp_path / "mine", 3)
    terminal.settings["data"] = {"source": "s3://theirs/images/*.csv", "shared": True}
    terminal.train_for(3)
    monkeypatch.chdir(terminal.folder)
    with pytest.raises(paddle_aws.BadInput, match=r"s3://theirs/images/\*.csv: .* --data PATH"):
        paddle_aws.rehearse("job.yaml")
    lines: list[str] = []
    job = paddle_aws.rehearse("job.yaml", data="a.csv", say=lines.append)
    assert job.status().phase == "done" and any("one copy" in line for line in lines)
    assert job.wait().training.succeeded == 2
    manifest = json.loads(terminal.volume.data_manifest.read_text())
    assert manifest["source"]["uri"].endswith("/sources/links/data")  # What stands for it here.
    with pytest.raises(paddle_aws.BadInput, match="volume is 'old': new or keep is allowed"):
        paddle_aws.rehearse("job.yaml", volume="old")  # type: ignore[arg-type]
    # What cannot be served costs no model: it is refused before the last volume goes.
    for name, fault in (("", "it holds no file"), ("a\x01b", "a name that no object can have")):
        folder = tmp_path / f"data-{len(name)}"
        folder.mkdir()
        if name:
            (folder / name).touch()
        with pytest.raises(paddle_aws.BadInput, match=fault):
            paddle_aws.rehearse("job.yaml", data=folder)
    # The job stays the same wherever the program goes, and whatever its program writes.
    monkeypatch.chdir(tmp_path)
    with terminal.volume.steps(0, 0).open("a") as steps:
        for line in ('{"attempt": 1, "step": "x", "time": "y"}', '{"step": 1, "time": 1e300}'):
            steps.write(f"{line}\n")
    assert job.status().phase == "done"
    # A link or a pipe in the folder is no log of a pod's.
    (log,) = (terminal.folder / ".rehearsal/logs").glob("launch-*-1-*.trainer.log")
    log.unlink()
    log.symlink_to("/etc/hostname")
    assert "outside of the job's folder" in terminal.run("logs", "--rank", "1", code=2)


def test_a_proxy_in_the_shell_is_for_what_lies_beyond_this_machine(
    terminal: Terminal, dead_proxy: str
) -> None:
    """The program gets it for other machines; the data's server on this one is asked itself."""
    (terminal.folder / "program/train.py").write_text(
        "import os, urllib.request\n"
        "given = {name.lower(): os.environ[name] for name in os.environ if 'ROXY' in name}\n"
        "print('beyond', given['all_proxy'], urllib.request.getproxies()['https'], flush=True)\n"
        "print('here', urllib.request.proxy_bypass('127.0.0.1'), flush=True)\n"
        "open('output/done', 'w').close()\n"
    )
    handler = functools.partial(SimpleHTTPRequestHandler, directory=terminal.folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/a.csv"
        job = {
            "name": "behind",
            "trainers": 1,
            "paddle": "2.6",
            "command": "python train.py {data}",
        }
        job |= {"program": {"folder": "./program"}, "data": {"source": address, "shared": True}}
        terminal.job_file.write_text(yaml.safe_dump(job))
        terminal.run("rehearse")
        server.shutdown()
    (log,) = terminal.folder.glob(".rehearsal/logs/behind-*.trainer.log")
    said = log.read_text()
    assert "here True" in said and f"beyond {dead_proxy} {dead_proxy}" in said


def sleeps(pid: int) -> bool:
    """Returns whether the process is in clock_nanosleep, as `wait` is once it has seen the job."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == "230"


@pytest.mark.long
def test_before_its_first_pod_it_is_the_one_that_runs_and_its_end_is_no_success(
    tmp_path: Path,
) -> None:
    """The program's folder is that of the job file, as in examples/launch; and a trial takes its
    time.
    """
    folder = tmp_path / "mine"
    shutil.copytree(PROJECT / "examples/quick_start", folder, ignore=lambda *_: ["sample.tsv"])
    subprocess.run([sys.executable, folder / "make_sample.py", folder / "a.tsv"], check=True)
    settings = {"name": "mine", "trainers": 2, "passes": 1, "program": {"folder": "."}}
    job = settings | {"data": {"source": "a.tsv", "hold_out": 0.1}}
    terminal = Terminal.__new__(Terminal)
    terminal.folder, terminal.settings = folder, settings
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    terminal.run("rehearse", "--no-try", "--set", "name=other", "--set", "passes=3")
    terminal.run("rehearse", "--no-try")
    assert "mine is done" in terminal.run("status")
    # Again: what the first one left is no part of the program. Nothing here is a module of ours.
    (folder / "settings.py").write_text("raise SystemExit('this is not ours')\n")
    for name, last in (("mine", 0), ("other", 2)):
        assert re.search(rf"accuracy 0\.\d+ of pass {last},", terminal.run("evaluate", name))
    program = (folder / "train.py").read_text()
    (folder / "train.py").write_text(f"import time\ntime.sleep(6)\n{program}")
    rehearsal = terminal.start("rehearse", "--volume", "keep")
    terminal.wait_for(lambda: "is waiting" in terminal.run("status"), rehearsal)
    waiting = terminal.start("wait")
    terminal.wait_for(lambda: sleeps(waiting.pid), waiting)
    assert "runs no pods now: Ctrl-C in its terminal ends it" in terminal.run("cancel", code=2)
    os.kill(rehearsal.pid, signal.SIGKILL)
    rehearsal.communicate()
    output, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 1 and "ended before it made any pod" in output
    # One that dies between the split and the training has failed.
    (folder / "train.py").write_text(program)
    lost = subprocess.Popen(
        [*PADDLE_AWS, "rehearse", "--no-try"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert lost.stdout is not None
    next(line for line in lost.stdout if "upload" in line)
    lost.stdout.close()
    assert lost.wait() == 1
    assert "mine failed: the rehearsal failed" in terminal.run("status")
    assert "training failed" in terminal.run("wait", code=1)


def test_a_folder_that_somebody_else_prepared_loses_nothing_and_stops_nobody(
    terminal: Terminal,
) -> None:
    state, precious = terminal.folder / ".rehearsal", terminal.folder / "precious"
    precious.write_text("x")
    state.mkdir()
    (state / "lock").symlink_to(precious)
    assert "cannot be used" in terminal.run("rehearse", code=2) or precious.read_text()
    (state / "lock").unlink()
    os.mkfifo(state / "lock")
    assert "lock is not a file: remove it" in terminal.run("rehearse", code=2)
    (state / "lock").unlink()
    os.mkfifo(state / "job.json")
    assert "there is no .rehearsal/job.json" in terminal.run("status", "--rehearsal", code=2)
    assert precious.read_text() == "x"


@pytest.fixture
def stranger() -> Iterator[None]:
    """A process that listens on the usual ports, on every address; where another test's pods hold
    them, they are the strangers there: they may have claimed 7162, and not yet begun to listen.
    """
    with ExitStack() as listening:
        with suppress(OSError), socket.socket() as claim:
            claim.bind(("", 7162))
            for port in (7163, 7180):
                listening.enter_context(socket.create_server(("", port)))
        yield


@pytest.mark.long
def test_several_at_once_and_a_stranger_on_the_usual_ports_never_meet(
    tmp_path: Path, stranger: None
) -> None:
    collective = {
        "name": "collective",
        "mode": "collective",
        "trainers": 2,
        "passes": 2,
        "program": {"folder": str(PROJECT / "examples/collective")},
        "data": {"source": str(PROJECT / "examples/quick_start/sample.tsv")},
    }
    # Both releases log where their stores listen.
    terminals = [
        Terminal(tmp_path / f"launch-{paddle}", 4, paddle=paddle) for paddle in ("2.6", "3.3")
    ]
    for number in range(2):
        folder = tmp_path / f"collective-{number}"
        folder.mkdir()
        terminal = Terminal.__new__(Terminal)
        terminal.folder, terminal.settings = folder, collective
        (folder / "job.yaml").write_text(yaml.safe_dump(collective))
        terminals.append(terminal)
    running = [terminal.start("rehearse", "--no-try") for terminal in terminals]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4, "\n".join(outputs)
    ports = set()
    for terminal in terminals:
        log = "".join(
            file.read_text() for file in terminal.folder.glob(".rehearsal/logs/*-0-*.trainer.log")
        )
        assert "attempt 2" not in log
        listens = r"starts to listen on IP_ANY:(\d+)|create libuv server at port: (\d+)"
        ports |= {"".join(port) for port in re.findall(listens, log)}
    assert len(ports) == 4 and "7180" not in ports
