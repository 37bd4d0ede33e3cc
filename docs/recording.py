"""Records docs/rehearsal.svg from a real run: the job of docs/learn/first-hour.md is rehearsed, and
one of its training processes is killed. `python docs/recording.py` writes it anew.

The picture shows the lines in the order and, sped up, at the times at which they were printed;
whoever prefers no motion sees all of them at once.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
SECONDS = 14.0
"""Length of the picture's film."""
ROW, SIDE = 18, 16
LEFT_OUT = re.compile(
    r"without effect|names them\); why|the program wrote|\.rehearsal/logs/without|^ *$|Linux x86-64"
)

LABEL = (
    "A rehearsal on one machine: two pods train, a process is killed, both pods resume from the "
    "newest saved epoch, and the job is done"
)
STYLE = """<style>
text{font:14px ui-monospace,Menlo,Consolas,monospace;opacity:0}
text{animation:show 1ms forwards}
@keyframes show{to{opacity:1}}
@media (prefers-reduced-motion:reduce){text{animation:none;opacity:1}}
.said{fill:#cbd5e1}.done{fill:#86efac}.you{fill:#fde68a}.lost{fill:#fca5a5}
</style>"""


def write_files(folder: Path) -> None:
    """Writes the files that the page shows, and makes its data."""
    page = (DOCS / "learn" / "first-hour.md").read_text(encoding="utf-8")
    for name, text in re.findall(r'^```\w+ title="([^" ]+)"\n(.*?)^```$', page, re.M | re.S):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "make_flowers.py"], cwd=folder, check=True)


def record(folder: Path) -> list[tuple[float, str]]:
    """Rehearses, and kills a trainer after the first saved state. Returns each printed line with
    the seconds after which it came.
    """
    command = [sys.executable, "-P", "-m", "paddle_aws.operations.main", "rehearse", "job.yaml"]
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "88"}
    lines = [(0.0, "$ paddle-aws rehearse job.yaml")]
    began, killed = time.monotonic(), False
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as rehearsal:
        assert rehearsal.stdout is not None
        for line in rehearsal.stdout:
            lines.append((time.monotonic() - began, line.rstrip()))
            saved = list(folder.glob(".rehearsal/volume/flowers/output/**/epoch-19.pdparams"))
            if not killed and "attempt 1, step" in line and saved:
                lines.append((time.monotonic() - began, "$ pkill -9 -n -f 'train.py --data'"))
                pattern = f"train.py --data .*{folder.name}"
                subprocess.run(["pkill", "-9", "-n", "-f", pattern], check=True)
                killed = True
    assert rehearsal.returncode == 0 and killed
    return [(when, line) for when, line in lines if not LEFT_OUT.search(line)]


def draw(lines: list[tuple[float, str]]) -> str:
    """Returns the film as SVG."""
    width = max(len(line) for _, line in lines) * 8.4 + 2 * SIDE
    height = len(lines) * ROW + 2 * SIDE
    scale = SECONDS / lines[-1][0]
    rows = []
    for number, (when, line) in enumerate(lines):
        kind = "you" if line.startswith("$") else "done" if line.startswith("✓") else "said"
        if "SIGKILL" in line:
            kind = "lost"
        rows.append(
            f'<text class="{kind}" x="{SIDE}" y="{SIDE + ROW * (number + 0.8):.0f}" '
            f'style="animation-delay:{when * scale:.2f}s" xml:space="preserve">'
            f"{escape(line)}</text>"
        )
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}"'
    frame = f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#0f172a"/>'
    return "\n".join(
        (f'{opening} role="img" aria-label="{LABEL}">', STYLE, frame, *rows, "</svg>\n")
    )


def main() -> None:
    """Writes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        (DOCS / "rehearsal.svg").write_text(draw(record(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
