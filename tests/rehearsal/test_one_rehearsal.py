"""The frame of a rehearsal: the machine it needs, the folder it holds alone, the signals that end it once."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from rehearsal import interruption, machine
from rehearsal.errors import Refused
from rehearsal.pods.addresses import AddressBlock
from rehearsal.state import State


@pytest.mark.parametrize(("system", "processor"), [("Darwin", "arm64"), ("Linux", "aarch64")])
def test_a_machine_that_cannot_rehearse(monkeypatch, tmp_path, system, processor):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    with pytest.raises(Refused, match=f"this machine is {system} {processor}") as unfit:
        machine.check(tmp_path)
    assert unfit.value.code == 2 and "\n" not in str(unfit.value)


def test_a_clone_in_a_path_that_a_shell_takes_apart(tmp_path):
    clone = tmp_path / "my clone"
    for environment in (".venv-image", ".venv-emulator"):
        (clone / environment / "bin").mkdir(parents=True)
        (clone / environment / "bin/python").touch()
    with pytest.raises(Refused, match=f"this clone lies in {clone}: parameter servers save through a shell"):
        machine.check(clone)


def test_one_rehearsal_at_a_time_holds_the_folder(tmp_path):
    with State(tmp_path / ".rehearsal") as state:
        (state.volume / "old").touch()
        with pytest.raises(Refused, match="another rehearsal runs in this clone"), State(tmp_path / ".rehearsal"):
            pass
        assert (state.volume / "old").exists()
    with State(tmp_path / ".rehearsal") as state:
        assert list(state.volume.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=r"file is no folder that can be written \(File exists\)"), State(tmp_path / "file"):
        pass


def test_the_folder_is_free_when_its_holder_was_killed(tmp_path):
    program = "import sys, time; from pathlib import Path; from rehearsal.state import State\n"
    program += "with State(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with State(tmp_path):
        pass


def test_a_port_that_a_program_of_this_machine_holds_everywhere_is_said_before_anything_begins():
    with AddressBlock() as addresses, socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=f"port {port} is taken on all addresses of this machine") as unfit:
            addresses.check([port])
        assert unfit.value.code == 2 and "\n" not in str(unfit.value)
        taken.close()
        addresses.check([port])


@pytest.fixture
def handlers():
    """Signal handlers are again what they were, whatever a test does."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_work_and_the_second_cannot_break_its_end(number, handlers):
    ended = []

    async def work():
        asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), number)
        try:
            await asyncio.sleep(10)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.05)
            ended.append("in order")

    with pytest.raises(KeyboardInterrupt), interruption.caught():
        try:
            interruption.run(work())
        finally:
            os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)
    assert ended == ["in order"]


def test_a_signal_while_the_event_loop_is_made_is_not_lost_and_breaks_nothing(capsys, handlers):
    begun = []

    async def work():
        begun.append(True)
        await asyncio.sleep(10)

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self):
            os.kill(os.getpid(), signal.SIGINT)
            return super().new_event_loop()

    asyncio.set_event_loop_policy(Policy())
    try:
        with pytest.raises(KeyboardInterrupt), interruption.caught():
            interruption.run(work())
    finally:
        asyncio.set_event_loop_policy(None)
    assert begun == [True] and capsys.readouterr().err == ""


def test_a_signal_as_the_work_ends_is_not_lost(handlers):
    async def work():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), interruption.caught():
        interruption.run(work())


def test_signals_are_as_before_when_nothing_was_interrupted():
    before = signal.getsignal(signal.SIGINT)
    with interruption.caught():
        interruption.run(asyncio.sleep(0))
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_outside_the_pods_raises_once():
    program = textwrap.dedent("""
        import os, signal, time
        from rehearsal import interruption
        try:
            with interruption.caught():
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(10)
                finally:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.05)
                    print("in order")
        except KeyboardInterrupt:
            print("interrupted")
    """)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert said.stdout.split("\n")[:2] == ["in order", "interrupted"] and said.stderr == ""
