"""The data job's split of 1 GB of text lines beside GNU `split -n l/3` and `cp`, all in one run, as ratios.

What is compared: `split` balances bytes, checks nothing and leaves it to the kernel when the data reaches the disk. Ours
balances records, hashes every byte, fsyncs every file and writes a manifest. So each round is run twice: with the
time until the other tools' bytes are on the disk as well (`sync`), and without. Times are medians; peak memory is
the kernel's high-water mark of each process (11 MB is the floor of this measurement, not what `split` and `cp` need).
Ours starts Python each time, about 0.2 s on a quiet machine and much more on a busy one: measure on a quiet one.

    python benchmarks/split.py [megabytes] [rounds] [folder]
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).parents[1]
MEGABYTE = 1_000_000
SHARDS = 3


def sample(path: Path, size: int) -> None:
    """Seeded lines of 3 to 14 words, 63 bytes in the mean."""
    chance = random.Random(1)
    words = [f"{chance.getrandbits(chance.choice([12, 20, 32, 40])):x}" for _ in range(5000)]
    block = ("\n".join(" ".join(chance.choices(words, k=chance.randint(3, 14))) for _ in range(100_000)) + "\n").encode()
    with path.open("wb") as stream:
        while size > 0:
            size -= stream.write(block)


def measured(command: list[str], environ: dict[str, str] | None = None) -> tuple[float, int]:
    """Seconds and peak memory in bytes."""
    # A tiny parent in between: a process starts with the peak of the one that it was forked from.
    script = "import resource, subprocess, sys, time\nstarted = time.perf_counter()\n"
    script += "code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\nseconds = time.perf_counter() - started\n"
    script += "print(code, seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    done = subprocess.run([sys.executable, "-S", "-c", script, *command], env=environ, capture_output=True, text=True, check=True)
    code, seconds, peak = done.stdout.split()
    if code != "0":
        raise SystemExit(f"{command[0]} failed: {done.stderr}")
    return float(seconds), int(peak)


def main(megabytes: int = 1000, rounds: int = 5, folder: str = "") -> None:
    with tempfile.TemporaryDirectory(dir=folder or None) as name:
        root = Path(name)
        source, out = root / "in.txt", root / "out"
        sample(source, megabytes * MEGABYTE)
        size = source.stat().st_size

        def ours(**settings: str) -> Callable[[], tuple[float, int]]:
            environ = {
                "PATH": "/usr/bin:/bin",
                "OUT_DIR": str(out / "job"),
                "SPLIT_COUNT": str(SHARDS),
                "DATA_SOURCE": str(source),
                "PYTHONDONTWRITEBYTECODE": "1",
                **settings,
            }
            image = PROJECT / ".venv-image/bin/python"
            return lambda: measured([str(image), str(PROJECT / "trainer_image/split_data.py")], environ)

        def shell(command: str) -> Callable[[], tuple[float, int]]:
            return lambda: measured(["/bin/sh", "-c", f"cd {out} && {command}"])

        tools = {
            "GNU split -n l/3": shell(f"exec split -n l/{SHARDS} {source}"),
            "cp": shell(f"exec cp {source} copy"),
            "GNU split, then sync": shell(f"split -n l/{SHARDS} {source} && sync x*"),
            "cp, then sync": shell(f"cp {source} copy && sync copy"),
            "ours": ours(),
            "ours, 10 % held out": ours(HOLD_OUT="0.1"),
            "ours, shuffled": ours(SHUFFLE_SEED="1"),
        }
        times: dict[str, list[float]] = {tool: [] for tool in tools}
        peaks: dict[str, int] = dict.fromkeys(tools, 0)
        for _ in range(rounds):
            for tool, run in tools.items():
                if times[tool] and tool == "ours, shuffled":
                    continue  # Twenty times as long as the rest: one round says enough.
                out.mkdir()
                source.read_bytes() if size < 1 << 28 else subprocess.run(["cat", source], stdout=subprocess.DEVNULL, check=True)
                time.sleep(0.2)
                seconds, peak = run()
                times[tool].append(seconds)
                peaks[tool] = max(peaks[tool], peak)
                shutil.rmtree(out)
        subprocess.run(["sync"], check=True)

        base, durable = (statistics.median(times[tool]) for tool in ("GNU split -n l/3", "GNU split, then sync"))
        print(f"{size / 1e6:.0f} MB of lines into {SHARDS} shards, median of {rounds}, in {root.parent}")
        print(f"{'':24}{'seconds':>9}{'MB/s':>8}{'peak MB':>9}{'rate / split':>14}{'rate / split+sync':>19}")
        for tool, found in times.items():
            seconds = statistics.median(found)
            ratios = f"{base / seconds:14.2f}{durable / seconds:19.2f}"
            print(f"{tool:24}{seconds:9.2f}{size / 1e6 / seconds:8.0f}{peaks[tool] / 1e6:9.1f}{ratios}")


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((int, int, str), sys.argv[1:], strict=False)))
