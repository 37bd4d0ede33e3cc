"""The parts in a job of a trainer and a pserver, and of an evaluator of what they saved."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from paddle_node import coordination, environment
from paddle_node.contract import ExitCode
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import BadData, Finished, leave
from paddle_node.training import shard
from paddle_node.training.backends.backend import Backend
from paddle_node.training.backends.network import Model, check_model
from paddle_node.training.job import Job, Parse, Sampler, name_sample
from paddle_node.training.loop import Samples, StartingPoint, Training
from paddle_node.training.saver import Saver
from paddle_node.training.shard import Parser, Reader
from paddle_node.volume import data_manifest, durable, passes
from paddle_node.volume.job_folder import JobFolder

LOOK_INTERVAL = 0.01
"""Seconds between a pserver's looks into its pod's scratch folder."""


class PodJob(Job):
    """A trainer's or a pserver's part."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        self._reader = reader
        self._role = program.role
        self.pod = environment.parse()
        super().__init__(parse, self.pod.runtime, self.pod.seed)
        self.folder = self.pod.folder
        self.start = StartingPoint.read(self.folder, program.resumed)
        self.trainer_id = program.trainer_id
        self.attempt = program.attempt
        self.agreed: dict[str, str] = {}
        """The agreed values as JSON, kept because what the attempt resumed from may be removed
        before the next pass is saved.
        """
        if self._role == "TRAINER":
            self.session = coordination.join()

    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        if (
            self.start.parameters is not None
            and (kept := self.start.parameters / f"{name}.json").is_file()
        ):
            self.agreed[name] = kept.read_text()
            return json.loads(self.agreed[name])
        value = self._agree_in_attempt(name, count, merge)
        self.agreed[name] = json.dumps(value)
        return value

    def _agree_in_attempt(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        """Returns a value that the trainers agree on by shard; costs one read if they did before.

        Trainer 0 merges, and publishes with one rename under the digests of data and program. A
        pserver gets the value from its own pod's trainer, through a file in the pod's scratch
        folder; if it never does, the agent ends the process. It does not poll the volume: that
        would cost every pod requests, and for up to a minute an NFS client may answer from its
        cache that the file does not exist.
        """
        identity = self.pod.identity
        key = hashlib.sha256(f"{identity.data} {identity.program}".encode()).hexdigest()
        file = self.folder.output / "agreed" / f"{name}-{key[:16]}.json"
        handed_on = self.pod.home / "agreed" / f"attempt-{self.attempt}" / file.name
        if self._role == "PSERVER":
            while not handed_on.is_file():
                time.sleep(LOOK_INTERVAL)
            return json.loads(handed_on.read_text())
        session = self.session
        # All trainers must take the same branch, so only trainer 0 looks.
        exists = session.gather(f"{name} known", None if session.trainer_id else file.is_file())[0]
        if not exists:
            # The parts go through the volume: a vocabulary is too large for a message.
            stem = f"{file.stem}.attempt-{self.attempt}.trainer-"
            parts = [file.with_name(f"{stem}{trainer}") for trainer in range(session.trainers)]
            durable.write(parts[session.trainer_id], json.dumps(count(self._read_checked())))
            session.barrier(f"{name} counted")
            if session.trainer_id == 0:
                texts = [part.read_text() for part in parts]
                durable.write(file, json.dumps(merge([json.loads(text) for text in texts])))
                for part in parts:
                    part.unlink()
            session.barrier(f"{name} merged")
        text = file.read_text()
        durable.write(handed_on, text)
        return json.loads(text)

    def _shard(self) -> shard.Shard:
        staged = JobFolder(self.pod.stage_to) if self.pod.stage_to else None
        return shard.open_shard(self.folder, self.trainer_id, self._reader, staged)

    def _read_checked(self) -> Iterator[Any]:
        """Yields what this trainer's records say. Raises `Failure` after the last if the shard does
        not match the manifest.
        """
        records, parser = self._shard(), Parser(self.parse)
        for value in parser.values(records):
            # The health probe must see progress through a large shard, too.
            self.session.progress(self.start.first_pass, 0)
            yield value
        records.check(parser)

    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Backend:
        from paddle_node.training.backends.parameter_servers import ParameterServers

        model = check_model(network(), network)
        backend = ParameterServers(
            network, model, optimizer, self.pod.trainers, self.start.parameters, sync
        )
        if self._role == "PSERVER":
            backend.serve()
            leave(ExitCode.DONE)
        return backend

    def _use(self, backend: Backend, sample: Sampler, batch: int) -> NoReturn:
        if data_manifest.digest(self.folder.data_manifest) != self.pod.identity.data:
            raise BadData(
                f"{self.folder.data_manifest} is not the one that this run began with: the data "
                "was split again meanwhile; start another run"
            )
        saver = Saver(self.pod, self.session, backend, self.agreed, self.start.folder)
        samples = Samples(self._shard(), self.parse, sample, batch)
        with name_sample(sample):
            Training(self.pod, self.session, backend, samples, saver).run(self.start)
        leave(ExitCode.DONE)


class EvaluatedJob(Job):
    """Measures a pass on the held-out records."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        pod = environment.parse()
        super().__init__(parse, pod.runtime, pod.seed)
        self._pass = Path(program.evaluated_pass)
        self._held_out = shard.open_held_out(pod.folder, reader)

    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        return json.loads((self._pass / f"{name}.json").read_text())

    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Any:
        from paddle_node.training.local_model import LocalModel

        return LocalModel(network)

    def _use(self, backend: Any, sample: Sampler, batch: int) -> NoReturn:
        parser = Parser(self.parse)
        with name_sample(sample):
            evaluation = backend.evaluate(self._pass, map(sample, parser.values(self._held_out)))
        parser.check(self._held_out.name)
        if not evaluation:
            raise BadData(
                f"{self._held_out.name} has no records: hold some out when the data is split"
            )
        raise Finished({"pass": passes.read_record(self._pass)["pass"], **evaluation})
