"""One built image, shared by all tests of it."""

import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests import their helper by name, which pytest's importlib mode does not allow without this.
sys.path.insert(0, str(Path(__file__).parent))

from containers import BASE, COLLECTIVE, IMAGE, Cluster, Podman, missing


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """podman, with the image built by the same command that `make image` runs, on a base that
    debootstrap made.
    """
    reason = missing()
    if reason:
        pytest.skip(reason)
    podman = Podman()
    # Parallel test workers build one after another: the second finds every layer made.
    with (tmp_path_factory.getbasetemp().parent / "podman.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        podman.make_base(tmp_path_factory.mktemp("podman"))
        assert f"built {IMAGE}" in podman.build("--base", BASE, "--tag", IMAGE).stdout
    return podman


@pytest.fixture
def cluster(request: pytest.FixtureRequest, podman: Podman, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that runs the image or, with parameter COLLECTIVE, the image of the Dockerfile's
    other set of arguments.
    """
    image = getattr(request, "param", IMAGE)
    if image == COLLECTIVE:
        podman.build(
            "--base",
            BASE,
            "--tag",
            COLLECTIVE,
            "--requirements",
            "trainer_image/requirements-collective.lock",
        )
    cluster = Cluster(podman, tmp_path / "volume", image)
    yield cluster
    cluster.close()
