"""The secret by which the pods of a run recognize each other, in a file that only the job's user
may read.
"""

import secrets

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder


def read(folder: JobFolder, run_id: str) -> str:
    """Returns the run's secret, which the first pod creates. Blocking. Raises `Failure` if
    something else is in its place.
    """
    path = folder.run_state / f"secret-{run_id}"
    folder.run_state.mkdir(parents=True, exist_ok=True)
    durable.refresh(folder.run_state)
    if not path.exists():
        durable.create(path, secrets.token_hex(32), mode=0o600)
    if path.is_symlink() or len(secret := path.read_bytes()) != 64:
        raise Failure(
            ExitCode.BAD_DATA,
            f"{path} is not the secret of this run, which its first pod made: start another run",
        )
    return secret.decode(errors="replace")
