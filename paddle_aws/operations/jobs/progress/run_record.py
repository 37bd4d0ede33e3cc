"""What the volume records of a job's runs: attempts, how they ended, where their time went, and the
passes that all trainers have reported.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from paddle_node.volume import attempts
from paddle_node.volume.attempts import Attempts
from paddle_node.volume.goodput import Goodput

from paddle_aws.operations.account.bucket_upload import AT_ONCE
from paddle_aws.operations.cluster.reasons import shorten
from paddle_aws.operations.jobs.progress.training_metrics import Pass, passes
from paddle_aws.operations.jobs.volume.access import Volume

RECORD = "run/attempts.json"
"""The record's place below output/."""


def read_attempts(volume: Volume, files: list[dict[str, Any]]) -> Attempts:
    """Returns the record of the job's attempts; an empty one if `files`, the listing of output/,
    has none, or it is damaged.
    """
    if not any(file["name"] == RECORD for file in files):
        return Attempts()
    try:
        return attempts.parse(volume.read(f"output/{RECORD}"))
    except ValueError:
        return Attempts()


def failure_of(record: Attempts) -> str:
    """Returns why the last run failed; empty if it did not, or that is not recorded."""
    outcome = record.last_outcome
    return shorten(outcome.sentence, 1000) if outcome is not None and outcome.code else ""


def doubts_of(record: Attempts) -> str:
    """Returns what went wrong beside the training of the last run, which is done; empty: nothing
    that anybody saw.
    """
    outcome = record.last_outcome
    return shorten(outcome.doubts, 1000) if outcome is not None and not outcome.code else ""


def goodput_of(record: Attempts) -> Goodput | None:
    """Returns how the ended attempts spent their time; None if no attempt has reported it."""
    goodput = Goodput.total_of(attempt.seconds for attempt in record.attempts)
    return goodput if goodput.total else None


def trainers_in(files: list[dict[str, Any]]) -> int:
    """Returns how many trainers have written to output/, whose listing `files` is."""
    return len({entry["name"].partition("/")[0] for entry in files if entry["name"][:5] == "node_"})


def read_passes(volume: Volume, files: list[dict[str, Any]]) -> list[Pass]:
    """Returns the passes that all trainers have reported."""
    matches = [re.fullmatch(r"node_(\d+)/metrics\.jsonl", entry["name"]) for entry in files]
    trainers = sorted(int(match[1]) for match in matches if match)
    if not trainers:
        return []
    places = [f"output/node_{trainer}/metrics.jsonl" for trainer in trainers]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        texts = [text.decode(errors="replace") for text in pool.map(volume.read, places)]
    return passes(dict(zip(trainers, texts, strict=True)))
