"""What must be on the volume before this pod may report that it is ready: its shard, and the user's
program.

A pod that joins a run later reads what the run began with, wherever the newest manifest and the
program's link lead by then. The pod waits until the peers' deadline for a data job that was
submitted together with its job, and never reads a partial split.
"""

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from paddle_node import contract, runtimes
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadSetting, Failure
from paddle_node.requirements import archive
from paddle_node.retry import retry
from paddle_node.staging import program_archive, program_copy
from paddle_node.volume import attempts, data_manifest, durable, input_copies
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

POLL = 1.0
"""Seconds between two checks for the data; the data job takes minutes."""


def prepare(pod: PodEnvironment, report: Callable[[str], None]) -> PodEnvironment:
    """Returns the pod with the manifest, data and program of its processes, once the shard is
    verified, and copied to local disk if that is requested. Blocking. Raises `Failure`,
    OSError.
    """
    # Imports the checksum library, which must wait until the pod has said hello.
    from paddle_node.staging import shard_copy

    # Side by side with the data: both are mostly reading from the volume.
    unpacked = _environment(pod, report)
    run = retry(lambda: attempts.read(pod.folder).identity(pod.run_id), report)
    if run is None:
        _wait_for_data(pod, report, unpacked)
        data = retry(lambda: data_manifest.digest(pod.folder.data_manifest), report)
    else:
        data = run.data
    folder = retry(lambda: _find_manifest(pod.folder, data), report)
    # A further try keeps what an earlier one copied.
    place = retry(
        lambda: shard_copy.stage(
            folder, pod.trainer_id, pod.trainers, report, pod.stage_to, pod.room
        ),
        report,
    )
    brought = retry(lambda: inputs_of(folder), report)
    program, digest = retry(lambda: _program(pod, None if run is None else run.program), report)
    if pod.command.words:
        program = retry(lambda: _work_in(program, pod), report)
    if unpacked is not None:
        environment = unpacked.result()
        python, variables = str(environment / "bin" / "python"), pod.environ
        pod = replace(pod, python=python, environ=archive.variables(variables, environment))
    return replace(
        pod,
        folder=replace(folder, data=place.resolve(), inputs=brought),
        program=program,
        identity=Identity(data, digest),
    )


def _environment(pod: PodEnvironment, report: Callable[[str], None]) -> Future[Path] | None:
    """Begins to unpack the environment of the program's requirements; None: it has none."""
    if not pod.environment:
        return None
    unpacked: Future[Path] = Future()

    def work() -> None:
        try:
            unpacked.set_result(archive.bring(pod.environ, report, pod.peer_deadline))
        except BaseException as error:
            unpacked.set_exception(error)

    # It dies with the agent.
    threading.Thread(target=work, name="environment", daemon=True).start()
    return unpacked


def inputs_of(folder: JobFolder) -> dict[str, Path]:
    """Returns the verified inputs by name. Raises BadData, OSError."""
    manifest = data_manifest.read(folder.data_manifest)
    if manifest is None or not manifest.inputs:
        return {}
    return input_copies.verify_all(manifest.inputs, folder.root.parent)


def _work_in(program: Path, pod: PodEnvironment) -> Path:
    """Returns a folder private to this pod, as programs write where they start. Its `output` leads
    to the folder of the attempt that runs; what was there moves aside.
    """
    folder = program
    if not program.is_relative_to(pod.home):
        folder = pod.home / "program"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(program, folder, symlinks=True)
    pod.folder.output.mkdir(parents=True, exist_ok=True)
    output = folder / "output"
    if output.is_dir() and not output.is_symlink():
        shipped = contract.path(contract.SHIPPED, pod.environ)
        shutil.rmtree(shipped, ignore_errors=True)
        shipped.mkdir()
        output.rename(shipped / "output")
    if output.is_symlink():
        output.unlink()
    if not output.exists():
        output.symlink_to(contract.path(contract.ATTEMPT, pod.environ) / "output")
    return folder


def _find_manifest(folder: JobFolder, digest: str) -> JobFolder:
    """Returns the job's folder with the manifest that has this digest."""
    manifest = data_manifest.find(folder, digest)
    if manifest is None and digest:
        raise Failure(
            ExitCode.BAD_DATA,
            f"{folder.root} has no data manifest of digest {digest[:12]} any more, which this "
            "run reads: the data was split again meanwhile; start another run",
        )
    return (
        folder if manifest in (None, folder.data_manifest) else replace(folder, manifest=manifest)
    )


def _program(pod: PodEnvironment, digest: str | None) -> tuple[Path, str]:
    """Returns the program's folder, its link resolved, and its digest: those of the run, if it has
    any.
    """
    if pod.archive:
        place = contract.path(contract.UNPACKED, pod.environ)
        return program_archive.unpack(pod.folder, pod.archive, place), pod.archive
    if digest and (copied := program_copy.find(pod.folder, digest)) is not None and copied.is_dir():
        return copied, digest
    durable.refresh(pod.folder.root)
    folder = pod.program.resolve() if pod.program.is_symlink() else pod.program
    if not folder.is_dir():
        raise BadSetting(
            f"{Variable.TRAIN_CONFIG_DIR} is {pod.train_config_dir!r}: there is no "
            f"{pod.program} on the volume"
        )
    stays = runtimes.find_runtime(pod.way).program_stays
    return folder, program_copy.digest(folder) if stays else ""


def _wait_for_data(
    pod: PodEnvironment, report: Callable[[str], None], unpacked: Future[Path] | None
) -> None:
    deadline = time.monotonic() + pod.peer_deadline
    reported = False
    while not retry(lambda: _is_there(pod), report) and time.monotonic() < deadline:
        if not reported:
            reported = True
            report(f"waiting for {pod.folder.data_manifest}, which the data job writes last")
        if unpacked is not None and unpacked.done():
            # The data would come for nothing without an environment.
            unpacked.result()
        time.sleep(POLL)
    if pod.data_job and not retry(lambda: _is_there(pod), report):
        other = retry(lambda: data_manifest.read_intact(pod.folder.data_manifest), report)
        there = (
            f"the one there is of data job {other.job or 'unknown'}"
            if other
            else "no complete one is there"
        )
        raise Failure(
            ExitCode.BAD_DATA,
            f"{pod.folder.data_manifest} of data job {pod.data_job} did not come within "
            f"{pod.peer_deadline:.0f} s, {there}: let this job's own data job run to its end; "
            "where it has ended already, delete it and apply it again",
        )


def _is_there(pod: PodEnvironment) -> bool:
    """Returns whether the named data job's manifest is there; if none is named, any manifest or a
    shard put there by hand.
    """
    folder = pod.folder
    if pod.data_job:
        return getattr(data_manifest.read_intact(folder.data_manifest), "job", None) == pod.data_job
    if data_manifest.read(folder.data_manifest) is not None:
        return True
    by_hand = folder.shard(pod.trainer_id).exists() or folder.older_shard(pod.trainer_id).exists()
    return by_hand and not folder.splits.exists()
