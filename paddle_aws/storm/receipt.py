"""A storm's receipt: one JSON file for programs, and one page for people, in the board's look."""

import hashlib
import html
import json
import platform
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from paddle_node.volume import durable

from paddle_aws.rehearsal.summary import count
from paddle_aws.storm.faults import KINDS
from paddle_aws.storm.storm import RECEIPT, RecordedRun, Storm
from paddle_aws.storm.supervisor import ATTEMPTS
from paddle_settings.errors import visible

_DIGESTS = re.compile(r"has read data (\w+) and program (\w+)")
_COLOURS = {"start": "--starting", "step": "--training", "save": "--saving", "load": "--data"}


def escape(text: str) -> str:
    """Returns text for the page, with a program's orders for a terminal as escapes."""
    return html.escape(visible(text))


def write(storm: Storm, folder: Path, seconds: float) -> tuple[Path, Path]:
    """Writes receipt.json and receipt.html, and returns where they are."""
    receipt = document(storm, seconds)
    file, page = folder / RECEIPT, folder / "receipt.html"
    durable.write(file, json.dumps(receipt, indent=2) + "\n")
    durable.write(page, "".join(_page(storm, receipt)))
    return file, page


def conclusion(storm: Storm, seconds: float) -> str:
    """The last lines for a terminal."""
    failed, faults = storm.failed, sum(len(run.trace.came) for run in storm.runs)
    verdict = "every run ended well; results not compared: set metrics"
    if failed:
        verdict = f"{len(failed)} differ{'s' * (len(failed) == 1)}"
    elif storm.calm.compares:
        verdict = "every run was as the undisturbed ones"
    numbers = f"{count(len(storm.runs), 'run')}, {count(faults, 'fault')}"
    words = f"{numbers}, {seconds / 60:.1f} minutes: {verdict}"
    replays = [f"replay: {storm.replay(run)}" for run in failed if run.schedule]
    return "\n".join([words, *dict.fromkeys(replays)])


def document(storm: Storm, seconds: float) -> dict[str, Any]:
    """Returns the receipt: the runs, their faults, and the findings."""
    calm, job, file = storm.calm, storm.job, storm.source.file
    return {
        "receipt": 1,
        "job": job.name,
        "passed": storm.state == "done" and not storm.failed,
        "state": storm.state,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "seed": None if storm.plan.schedule else storm.plan.seed,
        "settings": {
            "file": file.name,
            "set": list(storm.source.overrides),
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None,
        },
        **_digests(storm),
        "versions": {
            "paddle_aws": version("paddle-aws"),
            "paddle": job.chosen_paddle,
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
        "limits_of_storm": {"stall_seconds": storm.stall, "attempts": ATTEMPTS},
        "calm": {
            "steps": len(calm.steps),
            "exactly_equal": calm.equal,
            "compared": calm.compares,
            "spread": {
                name: max(of for (_, other), of in calm.spreads.items() if other == name)
                for _, name in calm.spreads
            },
            "result": {name: list(between) for name, between in calm.last.items()},
            "of_an_earlier_storm": storm.takes,
            "runs": [_run(run, storm) for run in storm.calm_runs],
        },
        "runs": [_run(run, storm) for run in storm.runs],
        "calm_runs": storm.kept.document() if storm.kept is not None else None,
    }


def _digests(storm: Storm) -> dict[str, str | None]:
    for run in (*storm.calm_runs, *storm.runs):
        for line in run.trace.lines:
            if match := _DIGESTS.search(line):
                return {"data": match[1], "program": match[2]}
    return {"data": None, "program": None}


def _run(run: RecordedRun, storm: Storm) -> dict[str, Any]:
    verdict, trace = run.verdict, run.trace
    return {
        "name": run.name,
        "passed": verdict.passed,
        "succeeded": trace.succeeded,
        "reason": trace.reason or None,
        "seconds": round(trace.seconds, 2),
        "attempts": trace.attempts,
        "steps_done_again": verdict.repeated,
        "steps_left_out": list(verdict.lost),
        "longest_silence": round(trace.longest_silence, 2),
        "result": dict(trace.last),
        "faults": [
            {
                "fault": str(inflicted.fault),
                "seconds": None if inflicted.seconds is None else round(inflicted.seconds, 2),
                "attempt": inflicted.attempt or None,
                "effect": inflicted.what_it_did,
                "steps_done_again": verdict.lost_work.get(str(inflicted.fault), 0),
            }
            for inflicted in trace.inflicted
        ],
        "findings": [
            {
                "symptom": finding.symptom,
                "sentence": finding.sentence,
                "after": str(finding.fault) if finding.fault else None,
                "lines": list(finding.lines),
            }
            for finding in verdict.findings
        ],
        "fewest_faults": [str(fault) for fault in run.shrunk],
        "replay": storm.replay(run) if run.schedule else None,
        "written_outside_output": trace.elsewhere[:20],
    }


def _page(storm: Storm, receipt: Mapping[str, Any]) -> Iterator[str]:
    style = (files("paddle_aws.operations.board") / "page" / "board.css").read_text()
    name = escape(receipt["job"])
    state = "failed", "differs" if storm.failed else storm.state
    if storm.state == "done" and not storm.failed:
        state = "done", storm.calm.words_for_success
    runs = [*storm.calm_runs, *storm.runs]
    faults = [inflicted.fault for run in runs for _, inflicted in run.trace.came]
    silence = max((run.trace.longest_silence for run in runs), default=0.0)
    again = sum(run.verdict.repeated for run in storm.runs)
    tiles = {
        "Runs": (len(storm.runs), f"after {len(storm.calm_runs)} undisturbed ones"),
        "Faults": (len(faults), f"seed {receipt['seed']}" if receipt["seed"] else "as named"),
        "Failed": (len(storm.failed), "runs that were not as the undisturbed ones"),
        "Steps done again": (again, f"{again / max(1, len(faults)):.1f} for each fault"),
        "Longest silence": (f"{silence:.0f} s", "without a line, a file or a pod"),
    }
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>storm of {name}</title>\n<style>\n{style}\n"
        "pre { overflow-x: auto; font-size: .8rem; background: var(--surface); padding: .6rem }\n"
        ".card { margin: 1rem 0 }\nsvg { width: 100%; height: auto }\n</style>\n</head>\n"
        "<body>\n<header>\n"
        f'<h1>Storm of {name} <span class="state" data-state="{state[0]}">{state[1]}</span></h1>\n'
        f'<p class="quiet">{escape(receipt["written"])} · Paddle '
        f"{escape(str(receipt['versions']['paddle']))} · program "
        f"{escape(str(receipt['program']))} · data {escape(str(receipt['data']))}</p>\n"
        '</header>\n<main>\n<section class="tiles" aria-label="Numbers">\n'
    )
    for title, (number, note) in tiles.items():
        yield (
            f'<div class="tile"><h2>{title}</h2><b>{number}</b><span>{escape(note)}</span></div>\n'
        )
    yield "</section>\n"
    for run in runs:
        yield from _section(run, storm)
    yield "<h2>What the faults are</h2>\n<dl>\n"
    for kind in sorted({fault.kind for fault in faults}):
        yield f"<dt><code>{kind}</code></dt><dd>{escape(KINDS[kind])}</dd>\n"
    yield "</dl>\n</main>\n</body>\n</html>\n"


def _section(run: RecordedRun, storm: Storm) -> Iterator[str]:
    verdict, trace = run.verdict, run.trace
    state = ("done", storm.calm.words_for_success) if verdict.passed else ("failed", "differs")
    yield (
        f'<section class="card">\n<header><h2>{run.name} <span class="state" '
        f'data-state="{state[0]}">{state[1]}</span></h2><span class="quiet">'
        f"{trace.seconds:.0f} s, {count(trace.attempts, 'attempt')}, "
        f"{count(verdict.repeated, 'step')} done again</span></header>\n{_timeline(run)}\n"
    )
    for finding in verdict.findings:
        after = f"After <code>{escape(str(finding.fault))}</code>: " if finding.fault else ""
        lines = escape("\n".join(finding.lines))
        yield f'<p class="notice bad">{after}{escape(finding.sentence)}</p>\n<pre>{lines}</pre>\n'
    if run.schedule and not verdict.passed:
        yield f"<p>Replay: <code>{escape(storm.replay(run))}</code></p>\n"
    if trace.inflicted:
        yield (
            '<div class="scroll"><table><thead><tr><th scope="col">fault</th>'
            '<th scope="col" class="number">at</th><th scope="col">what it did</th>'
            '<th scope="col" class="number">steps done again</th></tr></thead><tbody>\n'
        )
        for inflicted in trace.inflicted:
            came = f"{inflicted.seconds:.1f} s" if inflicted.seconds is not None else "-"
            yield (
                f"<tr><td><code>{escape(str(inflicted.fault))}</code></td>"
                f"<td class=number>{came}</td><td>{escape(inflicted.what_it_did)}</td>"
                f"<td class=number>{verdict.lost_work.get(str(inflicted.fault), 0)}</td></tr>\n"
            )
        yield "</tbody></table></div>\n"
    yield "</section>\n"


def _timeline(run: RecordedRun) -> str:
    """Returns a picture: events as marks along the run's time, faults as lines."""
    trace = run.trace
    whole = max(trace.seconds, 0.001)

    def across(seconds: float) -> float:
        return round(1000 * seconds / whole, 1)

    marks: list[str] = []
    for event in trace.events:
        if colour := _COLOURS.get(event.kind):
            x, y = across(event.seconds), 10 + 6 * min(event.rank, 4)
            marks.append(f'<rect x="{x}" y="{y}" width="2" height="5" fill="var({colour})"/>')
    for seconds, inflicted in trace.came:
        x, title = across(seconds), escape(str(inflicted.fault))
        marks.append(
            f'<line x1="{x}" x2="{x}" y1="0" y2="46" stroke="var(--lost)" stroke-width="2">'
            f"<title>{title}</title></line>"
        )
    label = f"{run.name}: steps and files of each rank, and faults, over its time"
    return f'<svg viewBox="0 0 1002 46" role="img" aria-label="{label}">{"".join(marks)}</svg>'
