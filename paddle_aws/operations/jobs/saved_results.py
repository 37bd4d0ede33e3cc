"""A job's saved results on its volume, on a cluster or in a rehearsal, for programs that use the
Python API.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path

from paddle_aws.operations.errors import translate_errors
from paddle_aws.operations.jobs.progress.run_record import read_passes
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.jobs.volume.access import Volume
from paddle_aws.operations.jobs.volume.fetching import fetch_model


class SavedResults(ABC):
    """A job with a folder on a volume."""

    name: str

    @abstractmethod
    def volume(self) -> AbstractContextManager[Volume]:
        """Returns the job's folder on the volume, as a context manager."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Returns what its training pods were made with, as `settings_of` names it; empty if nobody
        knows any more.
        """

    @translate_errors()
    def results(self) -> list[Pass]:
        """Returns the finished passes in order of number: loss, records, seconds. For programs on
        paddle_node.fleet.
        """
        with self.volume() as volume:
            return read_passes(volume, volume.files("output"))

    @translate_errors()
    def model(self, to: str | Path) -> Path:
        """Fetches the trained model to `to`, as `paddle-aws results --model` does, and returns its
        place: `to`/model for inference, or the file or folder that a command's recipe or `success`
        names.
        """
        with self.volume() as volume:
            return Path(fetch_model(volume, self.name, self.settings(), str(to))[0])
