"""Prepares the volume for a job that expects a prepared one. In the tutorials, people copied
program and shards to the volume by hand; here the example of the same name and its sample replace
them.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from paddle_node.volume.job_folder import JobFolder

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput


def prepare(job: TrainingJob, folder: JobFolder, project: Path) -> str:
    """Puts the program and the data that the job expects on the volume there, if they are missing:
    `<job>/<program>/` and `<job>/data/<i>/`, as in the tutorial. Returns a remark; empty if nothing
    was missing.

    Raises BadInput for a program that has no example.
    """
    name, missing = str(job.program.folder), []
    example, program = project / "examples" / name, folder.root / name
    lacks_program = job.program.origin == "volume" and not program.exists()
    if lacks_program:
        missing.append("the program")
    shards = [(folder.shard(rank), folder.older_shard(rank)) for rank in range(job.trainers)]
    prepared = job.data is not None and job.data.prepared
    lacks_data = prepared and not any(shard.exists() for places in shards for shard in places)
    if lacks_data:
        missing.append(f"its data, dealt to data/0 to data/{job.trainers - 1}")
    if not missing:
        return ""
    if not (example / "train.py").is_file() or not (example / "make_sample.py").is_file():
        raise BadInput(
            f"{' and '.join(missing)} lie on your volume, and nothing here stands in for them: put "
            f"them into {folder.root} and rehearse with --volume keep"
        )
    if lacks_program:
        shutil.copytree(example, program, ignore=shutil.ignore_patterns("*sample*"))
    if lacks_data:
        _deal(example, folder, job.trainers)
    return f"{' and '.join(missing)} lie on your volume; here examples/{name} stands in for them"


def _deal(example: Path, folder: JobFolder, trainers: int) -> None:
    """Deals the example's sample to the trainers' older folders, line by line."""
    folder.root.mkdir(parents=True, exist_ok=True)
    sample = folder.root / "sample"
    subprocess.run([sys.executable, example / "make_sample.py", sample], check=True)
    lines = sample.read_text().splitlines(keepends=True)
    for rank in range(trainers):
        shard = folder.older_shard(rank)
        shard.mkdir(parents=True)
        (shard / "part-0").write_text("".join(lines[rank::trainers]))
    sample.unlink()
