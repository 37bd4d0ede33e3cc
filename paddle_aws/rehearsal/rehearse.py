"""One rehearsal, on this machine only: (deploy,) split, train, measure(, destroy).

It returns if every part succeeded and raises otherwise; either way, no process outlives it. It
reads the pods' work from the manifests on disk, never from the job's settings.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.contract import FIRST_PORT, SOURCES, TRAINER_PORTS, Variable
from paddle_node.volume.job_folder import JobFolder

from k8s_charts.names import COMPONENT
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.images import interpreter
from paddle_aws.operations.jobs import early_checks, trial
from paddle_aws.operations.jobs.evaluation import Evaluation
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.jobs.run import put_data, put_input
from paddle_aws.operations.jobs.volume.server import Folder
from paddle_aws.rehearsal import interruption, paddle_job, prepared_volume
from paddle_aws.rehearsal.account import Account
from paddle_aws.rehearsal.digests import digests
from paddle_aws.rehearsal.evaluation import evaluate
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.job_recorder import JobRecorder
from paddle_aws.rehearsal.pods import manifests
from paddle_aws.rehearsal.pods.addresses import LAST_PORT, ROOM, AddressBlock
from paddle_aws.rehearsal.pods.api_server import PodApi
from paddle_aws.rehearsal.pods.environment import expand
from paddle_aws.rehearsal.pods.fields import WithoutEffect
from paddle_aws.rehearsal.pods.job import CANCELLED, JobResult, Watcher, last_lines, run_job
from paddle_aws.rehearsal.pods.manifests import AnyJob, Job
from paddle_aws.rehearsal.pods.paddle_operator import run_paddle_job
from paddle_aws.rehearsal.pods.pod import Host
from paddle_aws.rehearsal.screen import PodScreen, Screen, TrainingScreen
from paddle_aws.rehearsal.summary import Results, count, shorten_path
from paddle_settings.addresses import hide_secrets


class Rehearsal:
    """One rehearsal. Call `run()` once."""

    def __init__(
        self,
        project: Path,
        job: TrainingJob,
        job_file: Path,
        account: Account,
        say: Callable[[str], None] = lambda text: None,
        data: Path | None = None,
        supervisor: Watcher | None = None,
        program: Path | None = None,
        say_ports: Callable[[str], None] | None = None,
    ) -> None:
        """Checks the job; `say` gets remarks on it. `data`: what to read in place of the job's
        source. `supervisor` watches the pods of the training. `program`: the archive of the
        program's folder, if it is written already. `say_ports` gets the sentence about Paddle's
        open ports in place of the screen. Raises BadInput.
        """
        self.project, self.job, self.job_file, self._account = project, job, job_file, account
        self._supervisor, self._program_archive, self._say_ports = supervisor, program, say_ports
        self._source = self._check(say, data)
        self._variant, self._interpreter = job.image_variant, project / ".venv-image" / "bin"
        self._places: dict[str, str] = {}
        """The data job's variables that name files of this machine in place of objects."""

    def _check(self, say: Callable[[str], None], data: Path | None) -> Path | None:
        """Returns what to upload: nothing where the data job reads its source. Raises BadInput."""
        job = self.job
        if job.pod_count > ROOM:
            raise BadInput(
                f"trainers is {job.trainers}: here at most {ROOM} pods have an address each, and "
                f"this job has {job.pod_count}"
            )
        paddle_job.check(job)
        # Pods, which start in other folders, get these paths.
        files = early_checks.check_inputs(job, self.job_file)
        self._inputs = {name: file.resolve() for name, file in files.items()}
        for name, input_source in job.inputs.items():
            if str(input_source).startswith("s3://"):
                raise BadInput(
                    f"inputs.{name} is {hide_secrets(str(input_source))}: a rehearsal has no "
                    "account to read it from; name a file here that stands for it: --set "
                    f"inputs.{name}=PATH"
                )
        source = job.data.source if job.data is not None and job.splits else None
        if data is None:
            if source is not None and source.startswith("s3://"):
                raise BadInput(
                    f"data.source is {hide_secrets(source)}: a rehearsal has no account to read it "
                    "from; name a file, or a folder, with such records: --data PATH"
                )
            file = early_checks.check_data(job, self.job_file, say) if job.splits else None
            return file and file.resolve()
        if source is None or job.source_on_volume or source.startswith("http"):
            raise BadInput(
                f"--data is {data}: it stands for a local or s3:// data.source, which this job "
                "does not have"
            )
        if not data.is_file() and not data.is_dir():
            raise BadInput(f"--data is {data}: there is no such file or folder")
        if data.is_dir() and job.local_file is not None:
            raise BadInput(f"--data is {data}: data.source is a file, and that is a folder")
        if fault := _fault_of_folder(data):
            raise BadInput(f"--data is {data}: {fault}")
        return data.resolve()

    def digests(self) -> dict[str, str] | None:
        """Returns `digests.digests` of this rehearsal. Raises OSError."""
        return digests(self.job, self.project, self._source, self._inputs)

    def run(
        self,
        state: RehearsalFolder,
        screen: Screen,
        *,
        trial_first: bool = True,
        verbose: bool = False,
        keep_volume: bool = False,
    ) -> Results:
        """Runs all phases in order. `trial_first` tries the program first; `verbose` names each
        field without effect; `keep_volume` continues with what the job left on the volume. Raises
        OperationError, CloudError, SettingError or KeyboardInterrupt.
        """
        self.screen, self._verbose, job = screen, verbose, self.job
        state.announce(job.name, job.namespace)
        early_checks.tell_recipe(job, screen.remark)
        early_checks.tell_program(job, screen.remark)
        if trial_first and job.command and job.program.requirements:
            # Before they are installed, which takes minutes.
            trial.check_packages(job, trial.program_of(job, self.job_file), self.job_file)
        self._prepare_python()
        if trial_first and job.has_agent:
            with screen.phase("try") as phase:
                tried = trial.try_first(job, self.job_file, bucket=False)
                phase.result = tried.removeprefix("tried: ")
        # Not earlier: a mistake in the program must not cost the last run's model.
        root = str(PurePosixPath(job.volume.folder or "", job.name))
        state.begin(job.name, root, keep_volume=keep_volume)
        self._state = state
        self._recorder = JobRecorder(job, state.path, self._interpreter, state.run)
        try:
            with AddressBlock() as addresses, self._account as account:
                account.deploy(state, screen)
                host = self._host(state)
                self._say_open_ports(addresses)
                self._bring(host)
                results = self._work(host, addresses)
                left = account.destroy(screen)
        except KeyboardInterrupt:
            self._recorder.close("the rehearsal was interrupted")
            raise
        except BaseException as error:
            sentence = str(error).partition("\n")[0] or type(error).__name__
            self._recorder.close(f"the rehearsal failed: {sentence}")
            raise
        self._recorder.close()
        return replace(results, retained=left)

    def _prepare_python(self) -> None:
        """Prepares the pods' Python. Raises BadInput for a command that it lacks."""
        job, now, programs = self.job, self.screen.show_activity, self._interpreter
        if self._variant or job.program.requirements:
            with self.screen.phase("python") as phase:
                built = job.builds_environment
                self._interpreter = interpreter.folder(job, self.project, now, plain=built)
                # The trial runs in it already; wheels come with the volume.
                programs = self._interpreter
                if built and job.program.wheels is None:
                    programs = interpreter.folder(job, self.project, now)
                phase.result = f"Paddle {job.chosen_paddle}"
                if requirements := len(job.program.requirements):
                    phase.result += f" with {requirements} requirements of the program"
        if packages := ", ".join(job.program.packages):
            self.screen.remark(f"not installed here, this machine's own are used: {packages}")
        path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
        if job.has_agent and job.command and job.program.wheels is None:
            first = job.command[0]
            if "/" not in first and not shutil.which(first, path=path):
                raise BadInput(f"command begins with {first}: there is no such program in {path}")

    # The work.

    def _work(self, host: Host, addresses: AddressBlock) -> Results:
        """Splits if there is a data job, trains, and measures the model on the held-out records."""
        data_jobs = _jobs(host, "data")
        for environment in _jobs(host, "environment"):
            self._build(environment, host, addresses)
        data = self._split(data_jobs[0], host, addresses) if data_jobs else {}
        if not self.job.has_agent:
            return self._paddle_job(host, addresses)
        if not self.job.way.passes:
            return self._program(host, addresses)
        training = host.manifests.jobs[-1]
        folder = job_folder(training, host)
        passes = self._train(training, host, addresses)
        if data_jobs:
            check_records(passes, data)
        held_out = _records(data.get("held_out") or {})
        evaluation = self._measure(host, addresses) if held_out else None
        return Results.from_passes(self.job, folder, passes, evaluation)

    def _build(self, job: Job, host: Host, addresses: AddressBlock) -> None:
        """Runs the environment Job with this machine's settings of pip and uv: none is a Secret."""
        digest = _variable(job, Variable.ENVIRONMENT)
        (mount,) = (mount for mount in job.template.containers[0].mounts if digest in mount.path)
        place = host.volume / mount.sub_path
        if self.job.program.wheels is None and not place.is_symlink():
            # Each rehearsal has a new volume, so this machine's cache keeps the environments.
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(interpreter.archive(self.job, self.project))
        with self.screen.phase("packages") as phase:
            interpreter.lay_limits(self.job, self.project, host.image_files)
            variables = {**host.image.environment, **interpreter.index_variables()}
            here = replace(host, image=replace(host.image, environment=variables))
            failed = "the environment could not be built"
            result = self._run(job, here, addresses, PodScreen(self.screen), failed)
            log = result.ended[-1].logs[job.template.containers[0].name]
            phase.result = last_lines(log, 1).removeprefix("environment: ")

    def _split(self, job: Job, host: Host, addresses: AddressBlock) -> dict[str, Any]:
        """Runs the data job. Returns the data manifest."""
        with self.screen.phase("split") as phase:
            watcher, failed = PodScreen(self.screen), "the data could not be split"
            result = self._run(_set_variables(job, self._places), host, addresses, watcher, failed)
            log = result.ended[-1].logs[job.template.containers[0].name]
            # What it says of lines was said before the rehearsal.
            for warning in re.findall(r"warning: the name .*", log.read_text(errors="replace")):
                self.screen.remark(warning, style="yellow")
            data: dict[str, Any] = json.loads(job_folder(job, host).data_manifest.read_text())
            phase.result = self._describe_data(data)
        return data

    def _describe_data(self, data: Mapping[str, Any]) -> str:
        """Returns what the data job made, by its manifest."""
        copies = ", ".join(read["name"] for read in data.get("inputs", ()))
        copied = f"; a copy of {copies}" if copies else ""
        if self.job.data is None:
            return f"no data{copied or '; the program brings its own'}"
        if data.get("shared"):
            return f"one copy that all pods read{copied}"
        counts = " + ".join(f"{_records(shard):,}" for shard in data["shards"])
        held_out = _records(data.get("held_out") or {})
        kept = f", {held_out:,} kept for the metric" if held_out else ""
        return f"{counts} records in {len(data['shards'])} shards{kept}{copied}"

    def _train(self, job: Job, host: Host, addresses: AddressBlock) -> tuple[Pass, ...]:
        with self.screen.phase("train") as phase:
            watcher = TrainingScreen(self.screen, job_folder(job, host))
            result = self._run(job, host, addresses, watcher)
            passes = tuple(watcher.table.passes.in_order)
            if not passes:
                raise Failed(
                    "training ended without a single pass that every trainer reported: with a kept "
                    "volume, raise `passes` to train on"
                )
            counts = f"{count(len(passes), 'pass', 'es')} by {count(job.completions, 'trainer')}"
            losses = f"loss {passes[0].loss:.3f} -> {passes[-1].loss:.3f}"
            phase.result = f"{counts}, {losses}{_describe_replaced(result)}"
        return passes

    def _measure(self, host: Host, addresses: AddressBlock) -> Evaluation:
        with self.screen.phase("measure") as phase:
            evaluation, _ = interruption.run(evaluate(self._documents, host, addresses))
            baseline = f"{evaluation.baseline_of}: {evaluation.baseline:.3f}"
            phase.result = f"{evaluation.metric} {evaluation.value:.3f} ({baseline})"
        return evaluation

    def _program(self, host: Host, addresses: AddressBlock) -> Results:
        """Runs a program that reports no passes, such as a command, to its end on all pods."""
        job, training = self.job, host.manifests.jobs[-1]
        folder = job_folder(training, host)
        if job.gpus.count:
            self.screen.remark(
                f"no GPU here: processes that would get one of {job.gpus.count} compute on the "
                "CPU, by gloo"
            )
        with self.screen.phase("train") as phase:
            result = self._run(training, host, addresses, TrainingScreen(self.screen, folder))
            pods = f"{job.trainers} pods with {job.chosen_processes} processes each"
            phase.result = f"{pods} ran to their end{_describe_replaced(result)}"
        several = folder.node(0) / "rank-0.log"
        log = several if several.exists() else folder.train_log(0)
        return Results.from_program(job, log, host.logs, folder)

    def _paddle_job(self, host: Host, addresses: AddressBlock) -> Results:
        """Runs a PaddleJob to its end."""
        (written,) = host.manifests.paddle_jobs
        stand_in = paddle_job.StandIn(written, host.manifests, self._account.image)
        for difference in stand_in.differences(gpus=self.job.gpus.count):
            self.screen.remark(difference)
        with self.screen.phase("train") as phase:
            job = stand_in.substitute(self.project)
            result = self._run(job, host, addresses, PodScreen(self.screen))
            replicas = " and ".join(f"{role.count} {name}" for name, role in written.roles.items())
            phase.result = f"{replicas} pods ran to their ends{_describe_replaced(result)}"
        (end,) = (end for end in result.ended if end.name == f"{written.name}-worker-0")
        log = end.logs[written.template.containers[0].name]
        return Results.from_program(self.job, log, host.logs)

    def _run(
        self,
        job: AnyJob,
        host: Host,
        addresses: AddressBlock,
        watcher: Watcher,
        failed: str = "training failed",
    ) -> JobResult:
        """Runs a job to its end and records it. Raises Failed with the last log lines of the pod
        that made it fail.
        """
        self._recorder.begin(job)
        watchers, cancelled = [self._recorder, watcher], self._state.is_cancelled
        if self._supervisor and host.manifests.jobs and job is host.manifests.jobs[-1]:
            watchers.append(self._supervisor)
        with ExitStack() as stack:
            if job.template.token:
                watchers.append(stack.enter_context(PodApi(self._state.path / "api")))
            for watcher in watchers:
                job, host = watcher.prepare(job, host)
            if isinstance(job, Job):
                work = run_job(job, host, addresses, *watchers, cancelled=cancelled)
            else:
                work = run_paddle_job(job, host, addresses, *watchers, cancelled=cancelled)
            result = interruption.run(work)
        self._recorder.end(result)
        if result.succeeded:
            return result
        name, pod = f"{type(job).__name__} {job.name}", result.culprit
        if result.reason == CANCELLED:
            raise Failed(f"{name} was cancelled: volume, logs and record stay")
        sentence = f"{failed}: {name} {result.reason}"
        if pod is None:
            raise Failed(sentence)
        log, code = pod.logs[pod.failed_container], pod.codes[pod.failed_container]
        raise Failed(
            f"{sentence}: pod {pod.name} ended with code {code}; the end of {shorten_path(log)}:\n"
            f"{last_lines(log)}"
        )

    # What the pods find.

    def _host(self, state: RehearsalFolder) -> Host:
        with self.screen.phase("manifests") as phase:
            files = self._account.write_manifests(state)
            self._documents = manifests.load(files)
            objects = manifests.read(self._documents)
            host = state.host(self.project, objects, self._interpreter, self._account.identity)
            work = [f"{type(job).__name__} {job.name}" for job in objects.work]
            place = shorten_path(state.manifests)
            phase.result = f"{len(files)} files in {place}/ with {' and '.join(work)}"
        self._say_without_effect((*objects.without_effect, *host.machine.without_effect))
        return host

    def _say_without_effect(self, notes: Sequence[WithoutEffect]) -> None:
        """Reports once which fields have no effect on one machine, and writes why to a file."""
        reasons = self._state.logs / "without-effect.txt"
        reasons.write_text("".join(f"{', '.join(names)}: {reason}\n" for reason, names in notes))
        names = sorted({name for _, names in notes for name in names})
        which = f"{len(names)} fields of the manifests (--verbose or VERBOSE=1 names them)"
        if self._verbose:
            which = ", ".join(names)
        self.screen.remark(f"without effect on one machine: {which}; why: {shorten_path(reasons)}")

    def _say_open_ports(self, addresses: AddressBlock) -> None:
        first, last = (port + addresses.port_shift for port in (FIRST_PORT, LAST_PORT))
        what, ports = "store listens on all addresses", f"{first} to {last}"
        if self.job.way.servers:
            what = "parameter servers and trainers answer all users"
            ports += f" or from {TRAINER_PORTS[0]} to {TRAINER_PORTS[-1]}"
        say = self._say_ports or self.screen.remark
        say(
            f"while it trains, Paddle's {what} of this machine without a key, at a port from "
            f"{ports}: let no stranger reach these"
        )

    def _bring_inputs(self, host: Host) -> None:
        if not self._inputs:
            return
        with self.screen.phase("inputs") as phase:
            data_job, names = _jobs(host, "data")[0], ", ".join(self._inputs)
            addresses: dict[str, str] = json.loads(_variable(data_job, Variable.INPUTS))
            for name, file in self._inputs.items():
                if self.job.uploads_to_bucket:
                    place = f"inputs/{name}"
                    addresses[name] = self._upload(data_job, host, file, addresses[name], place)
                else:
                    put_input(Folder(job_folder(data_job, host).root), self.job, name, file)
            self._places[Variable.INPUTS] = json.dumps(addresses)
            phase.result = f"{names} to where `submit` brings them"

    def _upload(self, job: Job, host: Host, file: Path, address: str, place: str) -> str:
        """Brings what an address names; returns where the data job reads it."""
        folder = job_folder(job, host).root
        path = self._account.upload(file, address, folder / SOURCES / "links" / place)
        return address if path is None else f"{_mounted_at(job)}/{path.relative_to(folder)}"

    def _bring(self, host: Host) -> None:
        """Puts the inputs, the data and the program's archive where `submit` puts them."""
        self._bring_inputs(host)
        if self._source is not None:
            with self.screen.phase("upload") as phase:
                job, target = _jobs(host, "data")[0], f"the volume: {self.job.uploaded}"
                if self.job.uploaded is not None:
                    put_data(Folder(job_folder(job, host).root), self.job, self._source)
                else:
                    address = _variable(job, Variable.DATA_SOURCE)
                    path = self._upload(job, host, self._source, address, "data")
                    self._places[Variable.DATA_SOURCE] = path
                    target = f"s3://<bucket>/{address.split('/', 3)[3]}"
                phase.result = f"{self._source.name} to {target}"
        if host.manifests.jobs and not self.job.splits:
            folder = job_folder(host.manifests.jobs[-1], host)
            if remark := prepared_volume.prepare(self.job, folder, self.project):
                self.screen.remark(remark)
        if (archive := self.job.program.archive) is not None:
            place = job_folder(host.manifests.jobs[-1], host).archive(archive.digest)
            place.parent.mkdir(parents=True, exist_ok=True)
            if self._program_archive is not None:
                shutil.copyfile(self._program_archive, place)
            else:
                archive.write(place)


def _jobs(host: Host, component: str) -> list[Job]:
    return [job for job in host.manifests.jobs if job.template.labels.get(COMPONENT) == component]


def _fault_of_folder(folder: Path) -> str:
    """Returns why the files of a folder cannot be a bucket's objects; empty if they can."""
    files = 0
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if not name.isprintable():  # Also a name that is not UTF-8.
                return f"it holds {name!a}, a name that no object can have"
        if linked := [name for name in folders if Path(place, name).is_symlink()]:
            return f"{linked[0]} in it is a link to a folder, which is not followed"
        files += len(names)
    return "" if files or not folder.is_dir() else "it holds no file"


def check_records(passes: Sequence[Pass], data: Mapping[str, Any]) -> None:
    """Checks that each pass read every record of its shards, including those that the program
    skipped. Raises Failed.
    """
    shards = tuple(_records(shard) for shard in data.get("shards", ()))
    for pass_ in passes:
        records = tuple(trainer.records for trainer in pass_.trainers)
        if records != shards:
            raise Failed(
                f"pass {pass_.number} read {records} records by trainer, and the shards hold "
                f"{shards}"
            )


def _records(shard: Mapping[str, Any]) -> int:
    return sum(file["records"] for file in shard.get("files", ()))


def _describe_replaced(result: JobResult) -> str:
    return f", {count(result.retries, 'pod')} replaced" if result.retries else ""


def job_folder(job: AnyJob, host: Host) -> JobFolder:
    """The job's folder on the volume, found by the path that the manifest gives the pods."""
    for mount in job.template.containers[0].mounts:
        if mount.path == _mounted_at(job):
            return JobFolder(host.volume / mount.sub_path)
    raise BadInput(f"Job {job.name} mounts nothing at {_mounted_at(job)}, its folder")


def _mounted_at(job: AnyJob) -> str:
    return f"{_variable(job, Variable.JOB_PATH)}/{_variable(job, Variable.JOB_NAME)}"


def _variable(job: AnyJob, name: str) -> str:
    """A variable's value as the first container of the Job gets it: `$$` becomes `$`."""
    values = {entry.name: entry.value or "" for entry in job.template.containers[0].environment}
    if name not in values:
        raise BadInput(f"Job {job.name} sets no {name}")
    return expand(values[name], {})


def _set_variables(job: Job, values: Mapping[str, str]) -> Job:
    """Returns the Job with other values of variables that its first container sets."""
    environment = tuple(
        entry.model_copy(update={"value": values[entry.name].replace("$", "$$")})
        if entry.name in values
        else entry
        for entry in job.template.containers[0].environment
    )
    template = job.template.change_first(environment=environment)
    return job.model_copy(update={"template": template})
