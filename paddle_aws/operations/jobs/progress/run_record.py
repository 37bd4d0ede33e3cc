"""What the volume records of a job's runs: their attempts, their end, where their time went."""

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from paddle_aws.operations.account.bucket_upload import AT_ONCE
from paddle_aws.operations.account.locks.locked_prices import node_hour
from paddle_aws.operations.cluster.reasons import short
from paddle_aws.operations.jobs.progress.training_metrics import Pass, passes
from paddle_aws.operations.jobs.volume.access import Volume


def last_run(volume: Volume, files: list[dict[str, Any]]) -> tuple[list[Any], str]:
    """Returns the attempts that the volume records, and why the last run failed; empty if it did
    not, or that is not recorded.
    """
    attempts: list[Any] = []
    if not any(file["name"] == "run/attempts.json" for file in files):
        return attempts, ""
    try:
        record = json.loads(volume.read("output/run/attempts.json"))
        attempts = record["attempts"]
        outcome = record["outcomes"][attempts[-1]["run"]]
        return attempts, short(str(outcome["sentence"]), 1000) if outcome["code"] else ""
    except (ValueError, LookupError, TypeError, RecursionError):
        return attempts, ""


def goodput(attempts: list[Any], trainers: int) -> dict[str, Any] | None:
    """Returns for the ended attempts: the share of time spent on training that was kept, and the
    seconds per pod of each part.

    Also in dollars for all pods, if prices were read. None if no attempt has reported.
    """
    seconds: Counter[str] = Counter()
    with suppress(TypeError, AttributeError):
        for one in attempts:
            seconds.update({part: float(spent) for part, spent in one.get("seconds", {}).items()})
    if not (whole := sum(seconds.values())):
        return None
    usd = node_hour()
    cost = (
        {part: round(usd * trainers * spent / 3600, 2) for part, spent in seconds.items()}
        if usd
        else None
    )
    shown = {part: round(spent, 3) for part, spent in seconds.items()}
    return {"share": round(seconds["training"] / whole, 4), "seconds": shown, "usd": cost}


def read_passes(volume: Volume, files: list[dict[str, Any]]) -> list[Pass]:
    """Returns the passes that all trainers have reported."""
    matches = [re.fullmatch(r"node_(\d+)/metrics\.jsonl", entry["name"]) for entry in files]
    trainers = sorted(int(match[1]) for match in matches if match)
    if not trainers:
        return []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        texts = pool.map(
            lambda trainer: volume.read(f"output/node_{trainer}/metrics.jsonl"), trainers
        )
    return passes(
        {
            trainer: text.decode(errors="replace")
            for trainer, text in zip(trainers, texts, strict=True)
        }
    )
