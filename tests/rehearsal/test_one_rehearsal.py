"""The frame of a rehearsal: the machine it needs, the folder it holds alone, the signals that end it once."""

import asyncio
import os
import signal
import socket

import pytest

from operations.errors import BadInput
from rehearsal import interruption
from rehearsal.__main__ import main
from rehearsal.pods.addresses import AddressBlock
from rehearsal.state import State


@pytest.mark.parametrize(("system", "processor"), [("Darwin", "arm64"), ("Linux", "aarch64")])
def test_a_machine_that_cannot_rehearse(monkeypatch, capsys, system, processor):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    monkeypatch.setattr("sys.argv", ["rehearsal"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert said.startswith(f"this machine is {system} {processor}: a rehearsal needs Linux on x86-64") and said.count("\n") == 1


def test_a_clone_in_a_path_that_a_shell_takes_apart(tmp_path, monkeypatch, capsys):
    clone = tmp_path / "my clone"
    for environment in (".venv-image", ".venv-emulator"):
        (clone / environment / "bin").mkdir(parents=True)
        (clone / environment / "bin/python").touch()
    monkeypatch.setattr("rehearsal.__main__._PROJECT", clone)
    monkeypatch.setattr("sys.argv", ["rehearsal"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"this clone lies in {clone}: parameter servers save through a shell" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"file is no folder that can be written \(File exists\)"), State(tmp_path / "file"):
        pass


def test_a_port_that_a_program_of_this_machine_holds_everywhere_is_said_before_anything_begins():
    with AddressBlock() as addresses, socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"port {port} is taken on all addresses of this machine") as unfit:
            addresses.check([port])
        assert unfit.value.code == 2 and "\n" not in str(unfit.value)
        taken.close()
        addresses.check([port])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_work_and_the_second_cannot_break_its_end(number):
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
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
    for one, handler in before.items():
        signal.signal(one, handler)
