"""One rehearsal, on this machine only: deploy, split, train, measure, destroy.

It returns if every part went well and raises otherwise; no process outlives it either way. It reads
the pods' work from the manifests on disk, never from the job's settings.
"""

import json
import shutil
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddle_node.contract import JobFolder, Variable

from k8s_charts.deployed import pushed, read
from k8s_charts.names import DATA_ACCOUNT
from k8s_charts.spec import TrainingJob
from operations.cluster.volume_server import Folder
from operations.commands import trial
from operations.commands.evaluate import Evaluation
from operations.errors import BadInput, Failed
from operations.images import interpreter
from operations.jobs.early_checks import check_data, check_nodes
from operations.jobs.run import put_data
from operations.jobs.training_metrics import Pass
from rehearsal import account, interruption, paddle_job
from rehearsal.cloud import Cloud, CloudError
from rehearsal.evaluation import evaluate
from rehearsal.inventory import Inventory, Resource, retained
from rehearsal.pods import manifests
from rehearsal.pods.addresses import ROOM, AddressBlock
from rehearsal.pods.environment import expand
from rehearsal.pods.job import JobResult, last_lines, run_job
from rehearsal.pods.manifests import Job, Manifests, PaddleJob
from rehearsal.pods.paddle_job import run_paddle_job
from rehearsal.pods.pod import Host
from rehearsal.record import Recorder
from rehearsal.screen import PodScreen, Screen, TrainingScreen
from rehearsal.state import State
from rehearsal.summary import Results, shown
from stacks.cluster_spec import ClusterSpec


class Rehearsal:
    """One rehearsal. Call `run()` once."""

    def __init__(
        self,
        project: Path,
        config: Path,
        job_file: Path,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Reads and checks both settings files; `say` gets remarks on them. Raises SettingError and
        OperationError.
        """
        self.project, self.config, self.job_file = project, config, job_file
        self.dist = project / "dist"
        self._spec, self.job = ClusterSpec.load(config), TrainingJob.load(job_file, fetch=True)
        check_nodes(self.job, self._spec)
        self._source = self._check(say)
        self._variant, self._interpreter = self.job.image_variant, project / ".venv-image" / "bin"

    def _check(self, say: Callable[[str], None]) -> Path | None:
        """Returns the file to upload; None if the data job reads its source directly, or there is
        no data. Raises BadInput.
        """
        job = self.job
        for name, part in self._spec:
            for field in getattr(type(part), "model_fields", ()):
                if field.startswith("existing") and getattr(part, field):
                    there = f"{self.config.name}: {name}.{field} names what is in your account"
                    raise BadInput(
                        f"{there}, and a rehearsal deploys into an empty one: leave it out here, "
                        "or take another file"
                    )
        count = job.trainers + (job.parameter_servers or 0 if job.controller == "paddlejob" else 0)
        if count > ROOM:
            raise BadInput(
                f"trainers is {job.trainers}: here at most {ROOM} pods have an address each, and "
                f"this job has {count}"
            )
        if job.operator.elastic is not None:
            raise BadInput(
                f"paddlejob.elastic is {job.operator.elastic}: elastic workers meet in an etcd, "
                "which is not here"
            )
        if job.operator.intranet == "Host":
            raise BadInput(
                "paddlejob.intranet is Host: here each pod has an address of its own, PodIP or "
                "Service is allowed"
            )
        if job.data is None:
            return None
        if not job.splits:
            raise BadInput(
                "data is prepared elsewhere: a rehearsal begins with an empty volume, so it "
                "needs a data job"
            )
        return check_data(job, self.job_file, say)

    def run(
        self, state: State, screen: Screen, *, trial_first: bool = True, verbose: bool = False
    ) -> Results:
        """Runs all phases in order. `trial_first` tries the program before the deploy; `verbose`
        names each field without effect. Raises OperationError, CloudError, SettingError or
        KeyboardInterrupt.
        """
        self.screen, self._verbose, job = screen, verbose, self.job
        self._prepare_python()
        if trial_first and job.controller == "job":
            with screen.phase("try") as phase:
                phase.result = trial.before(job, self.job_file, bucket=False).removeprefix(
                    "tried: "
                )
        # Not earlier: a mistake in the program must not cost the last run's model.
        state.begin()
        self._recorder = Recorder(job, state.folder, self._interpreter)
        with ExitStack() as stack:
            addresses = stack.enter_context(AddressBlock())
            cloud, before = self._deploy(state, stack)
            host = self._host(cloud, state)
            self._bring(cloud, host)
            results = (self._paddle_job if host.manifests.paddle_jobs else self._job)(
                host, addresses
            )
            left = self._destroy(cloud, before, list(json.loads(state.outputs.read_text())))
        return replace(results, retained=left)

    def _prepare_python(self) -> None:
        """Prepares the pods' Python. Reports what cannot be installed, or a missing command, before
        anything is deployed.
        """
        job = self.job
        if self._variant:
            with self.screen.phase("python") as phase:
                self._interpreter = interpreter.folder(job, self.project)
                phase.result = (
                    f"Paddle {job.paddle} with {len(job.program.requirements)} requirements of "
                    "the program"
                )
        if job.program.packages:
            self.screen.remark(
                "not installed here, this machine's own are used: "
                f"{', '.join(job.program.packages)}"
            )
        path = f"{self._interpreter}:/usr/local/bin:/usr/bin:/bin"
        if (
            job.controller == "job"
            and job.command
            and "/" not in job.command[0]
            and not shutil.which(job.command[0], path=path)
        ):
            raise BadInput(
                f"command begins with {job.command[0]}: there is no such program in {path}"
            )

    # The work.

    def _job(self, host: Host, addresses: AddressBlock) -> Results:
        """Controller `job`: splits, trains, measures."""
        if len(host.manifests.jobs) != 2:
            jobs = len(host.manifests.jobs)
            raise BadInput(
                f"the manifests hold {jobs} Jobs: a rehearsal runs a data-split Job and a "
                "training Job"
            )
        folder, shards = self._split(host, addresses)
        if self.job.command is not None:
            return self._command(host, addresses, folder)
        passes = self._train(host, addresses)
        for one in passes:
            trained = tuple(trainer.records + trainer.skipped for trainer in one.trainers)
            if trained != shards:
                raise Failed(
                    f"pass {one.number} read {trained} records by trainer, and the shards hold "
                    f"{shards}"
                )
        evaluation = self._measure(host, addresses)
        return Results.of_passes(self.job, folder, passes, evaluation)

    def _split(self, host: Host, addresses: AddressBlock) -> tuple[JobFolder, tuple[int, ...]]:
        job = host.manifests.jobs[0]
        with self.screen.phase("split") as phase:
            self._run(
                job,
                run_job(job, host, addresses, PodScreen(self.screen)),
                "the data could not be split",
            )
            folder = _job_folder(job, host)
            data = json.loads(folder.data_manifest.read_text())
            shards = tuple(
                sum(file["records"] for file in shard["files"]) for shard in data["shards"]
            )
            held_out = sum(file["records"] for file in data.get("held_out", {}).get("files", ()))
            counts = " + ".join(f"{count:,}" for count in shards)
            kept = f", {held_out:,} kept for the metric" if held_out > 0 else ""
            whole = "one copy that all pods read"
            phase.result = (
                whole if data.get("shared") else f"{counts} records in {len(shards)} shards{kept}"
            )
        return folder, shards

    def _train(self, host: Host, addresses: AddressBlock) -> tuple[Pass, ...]:
        job = host.manifests.jobs[-1]
        with self.screen.phase("train") as phase:
            follower = TrainingScreen(self.screen)
            result = self._run(job, run_job(job, host, addresses, follower))
            passes = tuple(follower.table.passes.in_order)
            if not passes:
                raise Failed("training ended without a single pass that every trainer reported")
            counts = f"{_count(len(passes), 'pass', 'es')} by {_count(job.completions, 'trainer')}"
            phase.result = (
                f"{counts}, loss {passes[0].loss:.3f} -> {passes[-1].loss:.3f}{_replaced(result)}"
            )
        return passes

    def _measure(self, host: Host, addresses: AddressBlock) -> Evaluation:
        with self.screen.phase("measure") as phase:
            found, _ = interruption.run(evaluate(self._documents, host, addresses))
            phase.result = (
                f"{found.metric} {found.value:.3f} ({found.baseline_of}: {found.baseline:.3f})"
            )
        return found

    def _command(self, host: Host, addresses: AddressBlock, folder: JobFolder) -> Results:
        """Runs the user's command to its end on all pods."""
        job, training = self.job, host.manifests.jobs[-1]
        if job.gpus.count:
            self.screen.remark(
                f"no GPU here: processes that would get one of {job.gpus.count} compute on the "
                "CPU, by gloo"
            )
        with self.screen.phase("train") as phase:
            result = self._run(training, run_job(training, host, addresses, PodScreen(self.screen)))
            counts = f"{job.trainers} pods with {job.chosen_processes} processes each"
            phase.result = f"{counts} ran to their end{_replaced(result)}"
        several = folder.node(0) / "rank-0.log"
        return Results.of_program(
            job, several if several.exists() else folder.train_log(0), host.logs, folder
        )

    def _paddle_job(self, host: Host, addresses: AddressBlock) -> Results:
        """Controller `paddlejob`: splits the data, if there is any, and runs the operator's
        pods.
        """
        if host.manifests.jobs:
            self._split(host, addresses)
        (written,) = host.manifests.paddle_jobs
        here = written, host.manifests, self._image
        runs = paddle_job.ready(*here, self.project)
        with self.screen.phase("train") as phase:
            for difference in paddle_job.differences(*here, gpus=self.job.gpus.count):
                self.screen.remark(difference)
            result = self._run(runs, run_paddle_job(runs, host, addresses, PodScreen(self.screen)))
            counts = " and ".join(
                f"{replicas.count} {role}" for role, replicas in written.roles.items()
            )
            phase.result = f"{counts} pods ran to their ends"
        container = written.worker.template.containers[0].name
        log = next(end for end in result.ended if end.name == f"{written.name}-worker-0").logs[
            container
        ]
        return Results.of_program(self.job, log, log.parent)

    def _run(
        self,
        job: Job | PaddleJob,
        work: Coroutine[Any, Any, JobResult],
        failed: str = "training failed",
    ) -> JobResult:
        """Runs a Job to its end and records it. Raises Failed with the last log lines of the pod
        that made it fail.
        """
        began = datetime.now(UTC)
        result = interruption.run(work)
        self._recorder.ended(job, result, began)
        if result.succeeded:
            return result
        sentence, pod = f"{failed}: {type(job).__name__} {job.name} {result.reason}", result.culprit
        if pod is None:
            raise Failed(sentence)
        log, code = pod.logs[pod.failed_container], pod.codes[pod.failed_container]
        raise Failed(
            f"{sentence}: pod {pod.name} ended with code {code}; the end of {shown(log)}:\n"
            f"{last_lines(log)}"
        )

    # The account.

    def _deploy(self, state: State, stack: ExitStack) -> tuple[Cloud, Inventory]:
        log = stack.enter_context((state.logs / "cdk.log").open("w", buffering=1))

        def line(text: str) -> None:
            log.write(text + "\n")
            self.screen.now(text)

        with self.screen.phase("emulator") as phase:
            cloud = stack.enter_context(
                Cloud(self.project, state.cloud, line, region=self._spec.region)
            )
            phase.result = f"an AWS account of its own at {cloud.environment['AWS_ENDPOINT_URL']}"
        with self.screen.phase("bootstrap") as phase:
            cloud.bootstrap(self.config)
            phase.result = "paddle-aws bootstrap"
        before = cloud.inventory()
        with self.screen.phase("deploy") as phase:
            cloud.deploy(self.config, state.outputs)
            stacks = json.loads(state.outputs.read_text())
            made = sorted(cloud.inventory() - before)
            phase.result = f"cdk deploy --all: {len(stacks)} stacks, {len(made)} resources"
        return cloud, before

    def _host(self, cloud: Cloud, state: State) -> Host:
        with self.screen.phase("manifests") as phase:
            account.record_image(
                cloud, _output(state.outputs, "RepositoryUri"), state.image_record, self._variant
            )
            job, outputs, image, out = map(
                str, (self.job_file, state.outputs, state.image_record, self.dist)
            )
            cloud.paddle_aws(
                "manifests", job, "--outputs", outputs, "--image-file", image, "--out", out
            )
            files = sorted(self.dist.glob("*.k8s.yaml"))
            self._image = pushed(state.image_record)[self._variant]
            self._documents = manifests.load(files)
            found = manifests.read(self._documents)
            state.manifests.mkdir()
            for file in files:
                shutil.copy(file, state.manifests)
            if self._spec.cluster.self_managed:
                identity = account.node_role(cloud, DATA_ACCOUNT)
            else:
                identity = account.pod_identity(cloud, _output(state.outputs, "ClusterName"))
            host = state.host(self.project, found, self._interpreter, identity)
            work = [
                *(f"Job {job.name}" for job in found.jobs),
                *(f"PaddleJob {job.name}" for job in found.paddle_jobs),
            ]
            phase.result = f"{len(files)} files in {shown(self.dist)}/ with {' and '.join(work)}"
        self._say_without_effect(found, state.logs / "without-effect.txt")
        return host

    def _say_without_effect(self, read: Manifests, reasons: Path) -> None:
        """Reports once which fields of the manifests have no effect on one machine, and writes
        their reasons to a file.
        """
        reasons.write_text(
            "".join(f"{', '.join(names)}: {reason}\n" for reason, names in read.without_effect)
        )
        names = sorted({name for _, names in read.without_effect for name in names})
        which = (
            ", ".join(names)
            if self._verbose
            else f"{len(names)} fields of the manifests (VERBOSE=1 names them)"
        )
        self.screen.remark(f"without effect on one machine: {which}; why: {shown(reasons)}")

    def _bring(self, cloud: Cloud, host: Host) -> None:
        """Puts the data file and the program's archive where `submit` puts them."""
        if self._source is not None:
            with self.screen.phase("upload") as phase:
                job, where = host.manifests.jobs[0], f"the volume: {self.job.uploaded}"
                if self.job.uploaded is not None:
                    put_data(Folder(_job_folder(job, host).root), self.job, self._source)
                else:
                    address = _variable(job, Variable.DATA_SOURCE)
                    account.upload(cloud, self._source, address)
                    where = f"s3://<bucket>/{address.split('/', 3)[3]}"
                phase.result = f"{self._source.name} to {where}"
        if (archive := self.job.program.archive) is not None:
            place = _job_folder(host.manifests.jobs[-1], host).archive(archive.digest)
            place.parent.mkdir(parents=True, exist_ok=True)
            archive.write(place)

    def _destroy(self, cloud: Cloud, before: Inventory, stacks: list[str]) -> tuple[Resource, ...]:
        with self.screen.phase("destroy") as phase:
            meant = retained(cloud, stacks)
            cloud.destroy(self.config)
            left = sorted(cloud.inventory() - before)
            if forgotten := [str(resource) for resource in left if not meant(resource)]:
                raise Failed(
                    "\n".join([f"cdk destroy left {len(forgotten)} resources behind", *forgotten])
                )
            but = f" but for {len(left)} that retain keeps" if left else ""
            phase.result = f"cdk destroy --all: the inventory is as before{but}"
        return tuple(left)


def _replaced(result: JobResult) -> str:
    return f", {_count(result.retries, 'pod')} replaced" if result.retries else ""


def _count(number: int, what: str, more: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else more}"


def _job_folder(job: Job, host: Host) -> JobFolder:
    """The job's folder on the volume, found by the path that the manifest gives the pods."""
    mounted_at = f"{_variable(job, Variable.JOB_PATH)}/{_variable(job, Variable.JOB_NAME)}"
    for mount in job.template.containers[0].mounts:
        if mount.path == mounted_at:
            return JobFolder(host.volume / mount.sub_path)
    raise BadInput(f"Job {job.name} mounts nothing at {mounted_at}, its folder")


def _variable(job: Job, name: str) -> str:
    """A variable's value as the first container of the Job gets it: `$$` becomes `$`."""
    values = {entry.name: entry.value or "" for entry in job.template.containers[0].environment}
    if name not in values:
        raise BadInput(f"Job {job.name} sets no {name}")
    return expand(values[name], {})


def _output(outputs: Path, key: str) -> str:
    """One output of the deployed stacks, whichever stack has it."""
    found = [stack[key] for stack in read(outputs).values() if key in stack]
    if not found:
        raise CloudError(f"the deployed stacks have no output {key}")
    return found[0]
