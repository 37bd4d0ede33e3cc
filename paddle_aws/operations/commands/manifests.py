"""`paddle-aws manifests`: write what a cluster would get, for reading and for kubectl."""

import os
import subprocess
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from k8s_charts.deployed import Deployed
from k8s_charts.spec import TrainingJob
from paddle_aws.operations import options
from paddle_aws.operations.errors import BadInput, Exit, cli_errors
from paddle_aws.operations.jobs import early_checks
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.screen import echo, say


@cli_errors("interrupted: the same command writes the rest")
def manifests(
    job_file: options.JobFile = options.JOB_FILE,
    settings: options.Overrides = None,
    outputs: options.Outputs = options.OUTPUTS,
    image_file: options.ImageFile = options.IMAGE_FILE,
    out: Annotated[Path, typer.Option(help="Folder for the manifests, one file a step.")] = Path(
        "dist"
    ),
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Write nothing: show what differs from the folder's; exit code 1 if anything "
            "does.",
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="With --diff: compare with the folder at this commit or branch of its Git "
            "repository.",
        ),
    ] = None,
    for_rehearsal: Annotated[bool, typer.Option("--for-rehearsal", hidden=True)] = False,
) -> None:
    """Write a job's Kubernetes manifests, the same bytes as `cdk8s synth`. No cluster is needed.

    Before the first deploy, the manifests contain placeholders; the command names them and ends
    with 0. Such manifests are for reading: do not apply them, because kubectl would accept them.

    Example: paddle-aws manifests job.yaml --out dist

    Example: paddle-aws manifests --diff

    Example: paddle-aws manifests --diff --against origin/main
    """
    # Imported here: cdk8s takes a second to load.
    from k8s_charts import documents
    from k8s_charts.kinds import data_job

    if against is not None and not diff:
        raise BadInput(f"--against is {against}: it belongs to --diff")
    job = JobSource.from_job(job_file, settings).load()
    early_checks.tell_recipe(job, say)
    deployed = Deployed.load(job, outputs, image_file)
    early_checks.check_deployed(job, outputs)
    if not for_rehearsal:
        early_checks.check_host_path(job, deployed.outputs)
    local, inputs = (
        early_checks.check_data(job, job_file, say),
        early_checks.check_inputs(job, job_file),
    )
    if diff:
        _show_difference(job, deployed, out, against)
        return
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out is {out}: that is a file, a folder is needed")
    for path in documents.write(job, deployed.outputs, deployed.image, out):
        echo(path)
    early_checks.tell_program(job, say)
    early_checks.tell_risks(job, say)
    if deployed.missing:
        say(
            f"{deployed.missing}: the manifests hold placeholders; write them again after "
            f"`cdk deploy --all --outputs-file {outputs}`, before kubectl gets them"
        )
    elif local is not None:
        say(
            f"before the data job starts, {local} has to be at "
            f"{data_job.source(job, deployed.outputs)}: `submit` brings it there, and so does "
            f"`paddle-aws upload {local}{' --volume' * (job.uploaded is not None)} --job "
            f"{job_file}`"
        )
    if job.program.archive is not None and not deployed.missing:
        say(
            "before the data job starts, the program has to be on the volume: `submit` brings "
            f"it there, and so does `paddle-aws upload --program --job {job_file}`"
        )
    if inputs and not deployed.missing:
        places = (
            f"{file} has to be at {data_job.input_source(job, name, deployed.outputs)}"
            for name, file in inputs.items()
        )
        say(f"before the data job starts, {', '.join(places)}: `submit` brings it there")


def _read_committed(folder: Path, ref: str) -> dict[str, str]:
    """Returns the manifests of a folder at a commit, by name. Raises BadInput."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", *arguments], capture_output=True, encoding="utf-8", errors="replace"
            )
        except FileNotFoundError:
            raise BadInput(f"--against is {ref}: git is not installed") from None
        if done.returncode:
            # An unknown commit takes git several lines, of which the first says so.
            why = (done.stderr.strip().splitlines() or ["git failed"])[0]
            raise BadInput(f"--against is {ref}: {why.removeprefix('fatal: ')}")
        return done.stdout

    commit = git("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}").strip()
    place = Path(os.path.relpath(folder)).as_posix()
    names = git("ls-tree", "-z", "--name-only", commit, "--", f"{place}/").split("\0")
    return {
        Path(name).name: git("show", f"{commit}:./{name}")
        for name in names
        if name.endswith(".k8s.yaml")
    }


def _show_difference(job: TrainingJob, deployed: Deployed, out: Path, against: str | None) -> None:
    # Imported here: cdk8s takes a second to load.
    from k8s_charts import documents

    last = documents.read_files(out) if against is None else _read_committed(out, against)
    if not last and against is None:
        raise BadInput(
            f"{out} holds no manifests: write them once with `paddle-aws manifests`, then --diff "
            "has what to compare with"
        )
    colours = {"+": typer.colors.GREEN, "-": typer.colors.RED, "@": typer.colors.CYAN}
    differs = False
    now = documents.files(job, deployed.outputs, deployed.image)
    for name in sorted({*last, *now}):
        before, after = last.get(name), now.get(name)
        names = (
            f"{against or 'last'}/{name}" if before is not None else "/dev/null",
            f"now/{name}" if after is not None else "/dev/null",
        )
        for line in unified_diff(
            (before or "").splitlines(), (after or "").splitlines(), *names, lineterm=""
        ):
            differs = True
            typer.secho(line, fg=colours.get(line[:1]))
    if differs:
        raise SystemExit(Exit.FAILED)
