"""The trained model's metric on held-back rows, from a fresh process that knows only the volume.

The process is one more pod of the training Job's template: the same image, variables and mounts, another command.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from rehearsal.errors import Failed
from rehearsal.pods.addresses import AddressBlock
from rehearsal.pods.job import last_lines, run_job
from rehearsal.pods.manifests import Job
from rehearsal.pods.pod import Host

_COMMAND = ("python3", "/opt/paddle/evaluate_pass.py")


@dataclass(frozen=True)
class Evaluation:
    """What evaluate_pass.py prints as its one line of JSON."""

    number: int
    metric: str
    value: float
    better: bool
    """Than the baseline."""
    baseline: float
    baseline_of: str
    records: int


async def evaluate(training: Job, host: Host, addresses: AddressBlock) -> Evaluation:
    """Measure the last complete pass. Raises Failed with the process's own words."""
    container = replace(training.template.containers[0], command=_COMMAND, args=(), startup=None, liveness=None)
    template = replace(training.template, containers=(container,), subdomain="")
    once = replace(training, name=f"{training.name}-evaluate", template=template, completions=1)
    job = replace(once, back_off_limit=0, failure_rules=())
    result = await run_job(job, host, addresses)
    log = result.ended[-1].logs[container.name]
    if not result.succeeded:
        raise Failed("the trained model could not be evaluated", last_lines(log))
    for line in reversed(log.read_text().splitlines()):
        if line.startswith("{"):
            found = json.loads(line)
            names = ("pass", "metric", "value", "better", "baseline", "baseline_of", "records")
            return Evaluation(*(found[name] for name in names))
    raise Failed("evaluate_pass.py printed no result", last_lines(log))
