"""Compares the data job's split of 1 GB of text lines with GNU `split -n l/3` and `cp`, all in one
run, as ratios.

`split` balances bytes, checks nothing and leaves it to the kernel when the data reaches the disk.
Ours balances records, deals each to a shard, hashes every byte, fsyncs every file and writes a
manifest. So each round runs the other tools twice: with the time until their bytes are on the disk
as well (`sync`), and without. Times are medians. Processor seconds are those of all threads and
processes, system calls included. Peak memory is the kernel's high-water mark of the largest process
(11 MB is the floor of this measurement, not what `split` and `cp` need). Ours starts as in the
image, with compiled byte code: about 0.1 s of each run is Python's start.

Before each run, `warm` touches and frees memory and reads the source: a virtual machine that
returns free memory to its host pays for every page again, three times as much as the whole split,
and the first program would bear that cost.

    python benchmarks/split.py [megabytes] [rounds] [folder]
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PYTHON = PROJECT / ".venv-image/bin/python3"
MEGABYTE = 1_000_000
SHARDS = 3


def sample(path: Path, size: int) -> None:
    """Writes seeded lines of 3 to 17 words, 62 bytes on average; shorter first, so thirds of bytes
    are not thirds of records.
    """
    chance = random.Random(1)
    words = [f"{chance.getrandbits(chance.choice([12, 20, 32, 40])):x}" for _ in range(5000)]

    def block(most: int) -> bytes:
        return (
            "\n".join(
                " ".join(chance.choices(words, k=chance.randint(3, most))) for _ in range(100_000)
            )
            + "\n"
        ).encode()

    blocks = [(block(most), share) for most, share in ((12, 0.2), (14, 0.7), (17, 0.1))]
    with path.open("wb") as stream:
        for content, share in blocks:
            left = size * share
            while left > 0:
                left -= stream.write(content)


def image(root: Path) -> Path:
    """Returns the data job's entry point, laid out and compiled as in the image, for
    `PADDLE_NODE_ROOT=root`.
    """
    programs = root / "opt/paddle"
    shutil.copytree(
        PROJECT / "trainer_image/paddle_node",
        programs / "paddle_node",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(PROJECT / "trainer_image/split_data.py", programs)
    subprocess.run([str(PYTHON), "-m", "compileall", "-q", str(programs)], check=True)
    return PROJECT / "trainer_image/split.sh"


def warm(source: Path) -> None:
    """Touches and frees memory, and reads the source: see the module's docstring."""
    touch = "import mmap, sys\nsize = int(sys.argv[1])\nmemory = mmap.mmap(-1, size)\n"
    touch += "for at in range(0, size, 4096): memory[at] = 1"
    subprocess.run(
        [sys.executable, "-S", "-c", touch, str(source.stat().st_size * 6 // 5)], check=True
    )
    subprocess.run(["cat", str(source)], stdout=subprocess.DEVNULL, check=True)


def measured(command: list[str], environ: dict[str, str] | None = None) -> tuple[float, float, int]:
    """Runs `command`. Returns seconds, processor seconds, and peak memory in bytes."""
    # A tiny parent in between: a process starts with the memory peak of the process that forked it.
    script = "import resource, subprocess, sys, time\nstarted = time.perf_counter()\n"
    script += (
        "code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\nseconds = "
        "time.perf_counter() - started\n"
    )
    script += "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    script += "print(code, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, *command],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    code, seconds, processor, peak = done.stdout.split()
    if code != "0":
        raise SystemExit(f"{command[0]} failed: {done.stderr}")
    return float(seconds), float(processor), int(peak)


def main(megabytes: int = 1000, rounds: int = 5, folder: str = "") -> None:
    with tempfile.TemporaryDirectory(dir=folder or None) as name:
        root = Path(name)
        source, out = root / "in.txt", root / "out"
        sample(source, megabytes * MEGABYTE)
        size = source.stat().st_size

        entry = image(root)

        def ours(**settings: str) -> Callable[[], tuple[float, float, int]]:
            environ = {
                "PATH": f"{PYTHON.parent}:/usr/bin:/bin",
                "PADDLE_NODE_ROOT": str(root),
                "OUT_DIR": "/out/job",
                "SPLIT_COUNT": str(SHARDS),
                "DATA_SOURCE": "/in.txt",
                "PYTHONDONTWRITEBYTECODE": "1",
                **settings,
            }
            return lambda: measured([str(entry)], environ)

        def shell(command: str) -> Callable[[], tuple[float, float, int]]:
            return lambda: measured(["/bin/sh", "-c", f"cd {out} && {command}"])

        tools = {
            "GNU split -n l/3": shell(f"exec split -n l/{SHARDS} {source}"),
            "cp": shell(f"exec cp {source} copy"),
            "GNU split, then sync": shell(f"split -n l/{SHARDS} {source} && sync x*"),
            "cp, then sync": shell(f"cp {source} copy && sync copy"),
            "ours": ours(),
            "ours, 10 % held out": ours(HOLD_OUT="0.1"),
            "ours, shuffled": ours(SHUFFLE_SEED="1"),
            "the default: both": ours(SHUFFLE_SEED="1", HOLD_OUT="0.1"),
        }
        measurements: dict[str, list[tuple[float, float, int]]] = {tool: [] for tool in tools}
        for _ in range(rounds):
            for tool, run in tools.items():
                out.mkdir()
                subprocess.run(["sync"], check=True)
                warm(source)
                measurements[tool].append(run())
                shutil.rmtree(out)
        subprocess.run(["sync"], check=True)

        medians = {
            tool: [statistics.median(column) for column in zip(*runs, strict=True)]
            for tool, runs in measurements.items()
        }
        base, durable = medians["GNU split -n l/3"][0], medians["GNU split, then sync"][0]
        print(
            f"{size / 1e6:.0f} MB of lines into {SHARDS} shards, median of {rounds}, in "
            f"{root.parent}"
        )
        print(
            f"{'':24}{'seconds':>9}{'processor':>11}{'MB/s':>8}"
            f"{'peak MB':>9}{'rate / split':>14}{'rate / split+sync':>19}"
        )
        for tool, (seconds, processor, _) in medians.items():
            peak = max(run[2] for run in measurements[tool])
            ratios = f"{base / seconds:14.2f}{durable / seconds:19.2f}"
            print(
                f"{tool:24}{seconds:9.2f}{processor:11.2f}{size / 1e6 / seconds:8.0f}"
                f"{peak / 1e6:9.1f}{ratios}"
            )


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((int, int, str), sys.argv[1:], strict=False)))
