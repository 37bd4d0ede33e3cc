"""A job on a cluster: submits it, finds it by its name, waits for it, and fetches its results and
its model.

Nothing here prints or exits: progress messages go to `say`, and a failure that is not a bug raises
an `OperationError`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Self

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.account.aws import client
from paddle_aws.operations.account.bucket_upload import Progress, bar, upload_files
from paddle_aws.operations.cluster.cluster_api import ApiError, ClusterApi
from paddle_aws.operations.errors import Failed, TimedOut, translate_errors
from paddle_aws.operations.images.used_image import mark_used
from paddle_aws.operations.jobs import rehearsal_backend, removal, trial
from paddle_aws.operations.jobs.evaluation import Evaluation, check_program, measure
from paddle_aws.operations.jobs.job_source import JobReference, JobSource, resolve_job
from paddle_aws.operations.jobs.objects.job_objects import (
    newest_training,
    runs,
    selector,
    settings_of,
)
from paddle_aws.operations.jobs.objects.pod_state import culprit
from paddle_aws.operations.jobs.saved_results import SavedResults
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.volume.access import VOLUME, Volume, VolumeAccess, mount_volume
from paddle_aws.operations.jobs.volume.transfer import upload
from paddle_aws.operations.jobs.watch import log_stream, waiting
from paddle_aws.operations.jobs.watch.job_view import JobView, read_job
from paddle_aws.operations.jobs.watch.log_stream import TRAINING, PodLine, PodSelection
from paddle_aws.operations.jobs.watch.waiting import Follower
from paddle_aws.operations.options import DEFAULT, job_arguments

Say = Callable[[str], None]
log: Say = logging.getLogger("paddle_aws").info


class Run(SavedResults):
    """One job on one cluster; `submit` and `Run.find` return it."""

    def __init__(self, cluster: ClusterApi, name: str, namespace: str, file: Path | None) -> None:
        """`file` describes the volume if the cluster has forgotten the job."""
        self.cluster, self.name, self.namespace, self.file = cluster, name, namespace, file
        self.training = ""
        """The object that `submit` created. Empty: the newest of this name."""
        self.earlier: set[str] = set()
        """The uids of the trainings that were there before it: creation times have a resolution of
        a second, which does not order two of them.
        """
        self.follower = Follower(cluster, name, namespace)

    def __repr__(self) -> str:
        return f"Run({job_arguments(self.name, self.namespace)!r})"

    @classmethod
    @translate_errors()
    def find(
        cls,
        job: str | Path = DEFAULT,
        *,
        namespace: str | None = None,
        context: str | None = None,
        say: Say = log,
    ) -> Self:
        """Returns the job of that name or job file. Asks no cluster yet, but reads the kubeconfig:
        raises Unreachable if there is none.
        """
        which = resolve_job(str(job), namespace)
        return cls(ClusterApi(context, say), which.name, which.namespace, which.file)

    @translate_errors()
    def status(self) -> JobView:
        """Returns the job's state, its pods, and how far its training is. Raises BadInput if the
        cluster has no such job.
        """
        self._require_own()
        return read_job(self.cluster, self.name, self.namespace)

    @translate_errors()
    def wait(self, timeout: float | None = None) -> JobView:
        """Returns once the training has succeeded. Raises JobFailed, or TimedOut after `timeout`
        seconds, which ends no job.
        """
        self._require_own()
        # A mistyped name is refused at once, and so is a job that has no end to wait for.
        if read_job(self.cluster, self.name, self.namespace).cancelled:
            raise Failed(f"job {self.name} was cancelled: `paddle-aws resume` continues it")
        last = self.follower.wait_until(waiting.has_training_ended, timeout)
        if not waiting.has_training_ended(last):
            raise TimedOut(
                f"job {self.name} is still {last.phase} after {(timeout or 0) / 60:g} minutes: "
                "it keeps running"
            )
        waiting.require_success(last)
        return last

    @translate_errors()
    def evaluate(self) -> Evaluation:
        """Measures the newest complete pass on the held-out records, in a Job of one pod. Raises
        Failed.
        """
        check_program(self.name, self.settings())
        return measure(self.cluster, self.name, self.namespace, self.volume())

    def logs(
        self, selection: PodSelection = TRAINING, tail: int | None = None
    ) -> Iterator[PodLine]:
        """Yields what the existing pods have written."""
        self._require_own()
        return log_stream.read_written(self.cluster, self.name, self.namespace, selection, tail)

    def follow(
        self, selection: PodSelection, tail: int | None, show: Callable[[PodLine], None]
    ) -> JobView:
        """Shows the pods' lines as they arrive until the job ends; returns its last view."""
        return log_stream.follow_job(self.follower, show, selection, tail)

    @translate_errors()
    def cancel(self) -> list[str]:
        """Ends the job's pods, which save first; returns the objects that were ended. Data and
        passes stay on the volume.
        """
        return removal.end_running(self.cluster, self.name, self.namespace)

    def settings(self) -> dict[str, str]:
        training = newest_training(runs(self.cluster, self.namespace, selector(self.name)))

        def read(name: str) -> dict[str, str]:
            path = f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"
            with suppress(ApiError):  # Who may not read it sees fewer settings.
                return dict((self.cluster.find(path) or {}).get("data", {}))
            return {}

        return settings_of(training, read) if training is not None else {}

    @contextmanager
    def volume(self) -> Iterator[VolumeAccess]:
        self._require_own()
        which = JobReference(self.name, self.namespace, self.file)
        with mount_volume(self.cluster, which, write=False) as volume:
            yield volume
            self._require_own()  # It may have been replaced meanwhile.

    def _require_own(self) -> None:
        """Raises Failed if a training was submitted under this name after this one."""
        if not self.training:
            return
        found = runs(self.cluster, self.namespace, selector(self.name))
        others = [run for run in found if run["metadata"]["name"] != self.training]
        later = newest_training(
            [run for run in others if run["metadata"]["uid"] not in self.earlier]
        )
        if later is not None:
            raise Failed(
                f"job {self.name} was submitted again as {later['metadata']['name']}, which has "
                f"replaced {self.training}: paddle_aws.find({self.name!r}) answers for that"
            )


@translate_errors()
def submit(
    job: str | Path | Mapping[str, Any] = "job.yaml",
    *,
    context: str | None = None,
    outputs: str | Path = "outputs.json",
    image_file: str | Path = "image.json",
    say: Say = log,
) -> Run:
    """Uploads the job's program and local data, splits the data, and starts the training; returns
    once that is on the cluster.

    `job` is a job file, or its settings, whose local paths are relative to the current folder.
    `outputs` and `image_file` are the files that `cdk deploy --outputs-file` and `make push` wrote,
    if the job needs them. Raises BadInput for a job that cannot run, or runs already; Failed if the
    split fails; Unreachable.
    """
    return submit_loaded(
        Submission.load(JobSource.from_job(job), Path(outputs), Path(image_file)), context, say
    )


def submit_loaded(
    submission: Submission, context: str | None, say: Say, *, no_try: bool = False
) -> Run:
    """Submits a loaded job; `no_try` skips the trial of its program on a few records."""
    cluster = ClusterApi(context, say)
    submission.check(cluster)
    if not no_try:
        cluster.say(trial.try_first(submission.job, submission.file))
    run = Run(cluster, submission.job.name, submission.job.namespace, submission.plain_job_file)
    if submission.deployed.image != submission.job.image:
        mark_used(submission.deployed.image, cluster.say)
    upload_program(cluster, submission)
    split_data(submission, run.follower)
    before = runs(cluster, run.namespace, selector(run.name))
    start_training(cluster, submission)
    run.earlier = {document["metadata"]["uid"] for document in before}
    run.training = submission.training["metadata"]["name"]
    return run


def upload_program(cluster: ClusterApi, submission: Submission) -> None:
    """Uploads the program's archive to the job's folder on the volume, unless it is there
    already.
    """
    job, archive = submission.job, submission.job.program.archive
    if archive is None:
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, f"{archive.digest}.tar")
        archive.write(file)
        needed = [document for document in submission.documents if document["kind"] in VOLUME]
        submission.apply(cluster, needed)
        with (
            mount_volume(cluster, submission, write=True) as volume,
            bar(archive.root.name, file.stat().st_size) as progress,
        ):
            sent = upload(volume, [(file, file.name)], "programs", progress)
    cluster.say(
        f"{archive.root} {'is uploaded to' if sent else 'is already on'} the volume: "
        f"{job.name}/programs/{file.name}"
    )


def upload_data(cluster: ClusterApi, submission: Submission) -> None:
    """Uploads the job's local data file, if it has one, to where its data job reads it, unless this
    content is there already.
    """
    from k8s_charts.kinds import data_job

    job, file = submission.job, submission.local_file
    if file is None:
        return
    if job.uploaded is None:
        upload_files(client("s3"), file, data_job.source(job, submission.deployed.outputs))
        return
    with (
        mount_volume(cluster, submission, write=True) as volume,
        bar(file.name, file.stat().st_size) as progress,
    ):
        sent = put_data(volume, job, file, progress)
    cluster.say(
        f"{file} {'is uploaded to' if sent else 'is already on'} the volume: {job.uploaded}"
    )


def upload_inputs(cluster: ClusterApi, submission: Submission) -> None:
    """Uploads the job's local input files to where its data job reads them, as `upload_data`."""
    from k8s_charts.kinds import data_job

    job, files = submission.job, submission.input_files
    if not files:
        return
    if job.uploads_to_bucket:
        for name, file in files.items():
            address = data_job.input_source(job, name, submission.deployed.outputs)
            upload_files(client("s3"), file, address)
        return
    with mount_volume(cluster, submission, write=True) as volume:
        for name, file in files.items():
            with bar(file.name, file.stat().st_size) as progress:
                put_input(volume, job, name, file, progress)
    cluster.say(f"the inputs {', '.join(files)} are on the volume")


def put_input(
    volume: Volume, job: TrainingJob, name: str, file: Path, progress: Progress = lambda _: None
) -> None:
    """Puts an input's local file into the job's folder on its volume, as `put_data`."""
    place = job.place_of_input(name).relative_to(job.name)
    upload(volume, [(file, place.name)], str(place.parent), progress)


def put_data(
    volume: Volume, job: TrainingJob, file: Path, progress: Progress = lambda _: None
) -> bool:
    """Puts the local data file into the job's folder on its volume, whole and with its content
    compared; returns whether it had to be sent. For jobs with a place for it (`job.uploaded`).
    """
    place = PurePosixPath(str(job.uploaded)).relative_to(job.name)
    return bool(upload(volume, [(file, place.name)], str(place.parent), progress))


def split_data(submission: Submission, follower: Follower) -> None:
    """Splits the data onto the volume, and waits for the split. Raises Failed if it fails."""
    if submission.data_job is None:
        return
    job, cluster = submission.job, follower.cluster
    submission.apply(cluster, submission.documents_before_data())
    upload_data(cluster, submission)
    upload_inputs(cluster, submission)
    # Only the data job knows whether its source has changed: it runs again, and ends at once if the
    # source has not changed.
    submission.delete_ended(cluster, data=True)
    cluster.apply(submission.data_job)
    last = follower.wait_until(waiting.has_data_ended)
    failed, of = "", "data"
    if last.unbuilt:
        failed, of = f"its environment could not be built: {last.reason}", "environment"
    elif last.data is not None and last.data.phase == "failed":
        pod = culprit(pod for pod in last.pods if pod.component == "data")
        failed = f"the data split failed: {pod.failure if pod else last.data.reason}"
    if failed:
        arguments = job_arguments(job.name, job.namespace)
        raise Failed(
            f"job {job.name}: {failed}; `paddle-aws logs {arguments} --of {of}` shows its log"
        )
    what = "the data is split" if job.data is not None else "what the program reads is there"
    cluster.say(f"{what}: {submission.data_job['metadata']['name']} is done")


def start_training(cluster: ClusterApi, submission: Submission) -> None:
    """Starts the training."""
    rehearsal_backend.use_cluster()
    submission.apply(cluster, submission.documents_after_data())
    training = submission.training
    cluster.say(
        f"job {submission.job.name} is submitted: {training['kind']} {training['metadata']['name']}"
    )


find = Run.find
