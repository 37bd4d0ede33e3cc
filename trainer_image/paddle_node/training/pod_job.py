"""A trainer's or a pserver's part in a job."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from paddle_node import coordination, environment
from paddle_node.contract import ExitCode
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import BadData, leave
from paddle_node.training import shard
from paddle_node.training.agreement import agree_on
from paddle_node.training.backends.backend import Backend
from paddle_node.training.backends.network import Model, check_model
from paddle_node.training.job import Job, Parse, Sampler, name_sample
from paddle_node.training.loop import Samples, Training
from paddle_node.training.saver import Saver
from paddle_node.training.shard import Parser, Reader
from paddle_node.training.start import Start
from paddle_node.volume import data_manifest
from paddle_node.volume.job_folder import JobFolder


class PodJob(Job):
    """A trainer's or a pserver's part."""

    def __init__(self, program: ProgramEnvironment, parse: Parse, reader: Reader) -> None:
        self._reader = reader
        self._role = program.role
        self.pod = environment.parse()
        super().__init__(parse, self.pod.runtime, self.pod.seed)
        self.folder = self.pod.folder
        self.start = Start.read(self.folder, program.resumed)
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
        session = self.session if self._role == "TRAINER" else None
        value = agree_on(
            name, self.pod, self.attempt, session, lambda: count(self._read_checked()), merge
        )
        self.agreed[name] = json.dumps(value)
        return value

    def _shard(self) -> shard.Shard:
        staged = JobFolder(self.pod.local_disk.folder) if self.pod.local_disk else None
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
