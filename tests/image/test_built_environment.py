"""The environment Job's program, as the image runs it: uv works for real, against packages of a
few hundred bytes in a folder of the volume.
"""

import base64
import hashlib
import http.server
import io
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from paddle_node.failure import Failure
from paddle_node.requirements import archive

from tests.image.test_program_packages import wheel

PROJECT = Path(__file__).parents[2]
DIGEST = "ab" * 32
pytestmark = pytest.mark.slow


def lay_requirements(root: Path, *lines: str) -> None:
    """As the kubelet lays out the ConfigMap."""
    file = root / "opt/paddle/requirements/requirements.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


class Volume:
    """A volume with wheels, and the root of a container that mounts what the Job does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "home/jobpath/wheels"
        self.environment = folder / "home/jobpath/shared/environments" / DIGEST
        for place in (self.wheels, self.environment, folder / "home/paddle"):
            place.mkdir(parents=True)

    def start(self, *requirements: str, home: str = "", **more: str) -> subprocess.Popen[str]:
        root = self.root(home)
        lay_requirements(root, *requirements)
        return subprocess.Popen(
            [sys.executable, PROJECT / "trainer_image/build_environment.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder / "home/paddle"),
                "PIP_CONFIG_FILE": "/dev/null",
                # Two pods have two scratches.
                "PADDLE_NODE_ROOT": str(root),
                "PADDLE_NODE_ENVIRONMENT": DIGEST,
                "PADDLE_NODE_WHEELS": "/home/jobpath/wheels",
                **more,
            },
        )

    def root(self, name: str) -> Path:
        if not name:
            return self.folder
        root = self.folder.with_name(name)
        (root / "home/paddle").mkdir(parents=True)
        (root / "home/jobpath").symlink_to(self.folder / "home/jobpath")
        return root

    def build(self, *requirements: str, **more: str) -> tuple[int, str]:
        process = self.start(*requirements, **more)
        out, errors = process.communicate(timeout=120)
        return process.returncode, (errors or out).strip().rpartition("\n")[2]

    def refusals(self) -> list[Path]:
        return sorted(self.environment.glob("refusal-*.json"))

    def unpack(self) -> Path:
        place = self.folder / "unpacked"
        words = [sys.executable, "-m", "paddle_node.requirements.archive", self.environment, place]
        path = {**os.environ, "PYTHONPATH": str(PROJECT / "trainer_image")}
        subprocess.run(words, env=path, check=True)
        return place / "bin" / "python"


class Pod:
    """A pod of job words that waits for its environment."""

    def __init__(self, volume: Volume, name: str) -> None:
        root = volume.root(name)
        environ = {"JOB_NAME": "words", "JOB_NAMESPACE": "paddle", "PADDLE_NODE_RUN_ID": name}
        environ |= {"PADDLE_NODE_ROOT": str(root), "PADDLE_NODE_ENVIRONMENT": DIGEST}
        waits = threading.Event()
        self._result: Future[Path] = ThreadPoolExecutor(1).submit(
            archive.bring, environ, lambda text: waits.set(), 600.0
        )
        assert waits.wait(60)

    def wait(self) -> Path | Failure:
        try:
            return self._result.result(60)
        except Failure as failure:
            return failure


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    volume = Volume(tmp_path / "volume")
    wheel(volume.wheels, "tiny", "1.0")
    wheel(volume.wheels, "tiny", "2.0")
    wheel(volume.wheels, "strict", "1.0", "tiny<2")
    return volume


def lay(folder: Path, name: str, files: dict[str, str | bytes]) -> None:
    """Puts files into a wheel."""
    wheel(folder, name, "1.0")
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "a") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def sdist(folder: Path, name: str, backend: str, metadata: str = "2.1") -> None:
    """Makes a package whose own code builds it; from metadata 2.2 on, only to be installed."""
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as tar:
        for path, text in {
            "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\n"
            "backend-path = ['.']\n",
            "PKG-INFO": f"Metadata-Version: {metadata}\nName: {name}\nVersion: 1.0\n",
            "backend.py": backend,
        }.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


def test_two_at_once_one_killed_and_a_damaged_archive_leave_one_whole_environment(
    volume: Volume,
) -> None:
    killed = volume.start("tiny<2")
    # It has made the environment, and uv is about to install.
    while not (volume.folder / "home/paddle/environment/bin/python").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not list(volume.environment.glob("record-*"))
    both = [volume.start("tiny<2", home=name) for name in ("first", "second")]
    assert [process.communicate()[1] for process in both] == ["", ""]
    record, archive = sorted(volume.environment.iterdir(), reverse=True)
    assert [process.returncode for process in both] == [0, 0] and record.name == "record-1.json"
    said = subprocess.check_output(
        [volume.unpack(), "-c", "import tiny; print(tiny.__version__, tiny.__file__)"], text=True
    )
    assert said.startswith("1.0 ") and str(volume.folder / "unpacked") in said
    assert volume.build("tiny<2") == (0, "environment: it is there already: tiny==1.0")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    assert volume.build("tiny<2")[1].endswith("MB: tiny==1.0")
    assert (volume.environment / "record-2.json").exists()
    assert volume.unpack().exists()


def test_what_cannot_be_built_is_one_sentence_and_leaves_nothing(volume: Volume) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (tiny,) = volume.wheels.glob("tiny-2.0-*")
    good = hashlib.sha256(tiny.read_bytes()).hexdigest()
    wheel(volume.wheels, "needs-gpu", "1.0", "paddlepaddle_gpu")
    lay(volume.wheels, "paddlepaddle_gpu", {"paddle/__init__.py": ""})
    lay(volume.wheels, "shadow", {"paddle/__init__.py": ""})
    packages = f"python3.{sys.version_info.minor}/site-packages"
    lay(volume.wheels, "beside", {f"beside-1.0.data/data/lib64/{packages}/paddle/x.py": ""})
    sdist(volume.wheels, "offline", "import sys; sys.exit('Connection refused')")
    sdist(volume.wheels, "full", "def build_wheel(*_, **__): raise OSError(28, 'No space left')")
    other, this = (
        {"JOB_NAME": name, "JOB_NAMESPACE": "paddle", "PADDLE_NODE_RUN_ID": name}
        for name in ("other", "words")
    )
    this["PADDLE_NODE_RETRIES"] = "1"
    pod = Pod(volume, "pod")
    no_index = {
        "PADDLE_NODE_WHEELS": "",
        "PIP_INDEX_URL": f"https://127.0.0.1:{port}/simple",
        "PIP_RETRIES": "0",
    }
    for requirements, more, code, says in (
        (
            ("strict", "tiny>=2"),
            {},
            2,
            "do not fit together: Because all versions of strict depend on",
        ),
        (("absent",), other, 2, "cannot be installed: Because absent was not found in the"),
        (
            ("tiny==99",),
            {},
            2,
            "need tiny==99, a version that the package index does not have: its",
        ),
        ((f"tiny==2.0 --hash=sha256:{'0' * 64}",), {}, 2, "the index has other bytes"),
        (("needs-gpu",), {}, 2, "bring paddlepaddle-gpu 1.0 (for needs-gpu), which would"),
        (("shadow",), {}, 2, "bring the `paddle` of shadow 1.0, which would replace the image's"),
        (("beside",), {}, 2, "bring the `paddle` of beside 1.0, which would replace the image's"),
        # What a package says is nothing that uv says.
        (("offline",), {}, 2, "bring offline==1.0, whose build fails: Connection refused"),
        (("tiny", "full"), {}, 2, "bring full==1.0, whose build fails: OSError: [Errno 28]"),
        *[(("tiny",), {**no_index, **this}, 68, "the package index cannot be reached (")] * 2,
    ):
        ended, said = volume.build(*requirements, **more)
        assert (ended, says in said) == (code, True), said
    # The pods of that very job end with the last try, and one that begins later waits for the next
    # Job.
    ended = pod.wait()
    assert isinstance(ended, Failure) and ended.code == 65
    assert "cannot be built: the package index cannot be reached" in ended.sentence
    refusals = {file.name: json.loads(file.read_text()) for file in volume.refusals()}
    assert [(name, refusal["last"]) for name, refusal in refusals.items()] == [
        ("refusal-other-1.json", True),
        ("refusal-words-1.json", False),
        ("refusal-words-2.json", True),
    ]
    pod = Pod(volume, "next")
    # More than one variable or argument could hold.
    others = "".join(f" --hash=sha256:{number:064x}" for number in range(2_000))
    this["PADDLE_NODE_RUN_ID"] = "next"
    assert volume.build(f"tiny==2.0 --hash=sha256:{good}{others}", **this)[0] == 0
    assert isinstance(pod.wait(), Path)
    assert [file.name for file in volume.refusals()] == ["refusal-other-1.json"]


def test_a_full_volume_is_one_sentence_and_leaves_nothing(volume: Volume) -> None:
    words = "mount -t tmpfs -o size=64k none {0} && exec {1} {2}"
    script = words.format(
        volume.environment, sys.executable, PROJECT / "trainer_image/build_environment.py"
    )
    (volume.wheels / "tiny-2.0-py3-none-any.whl").unlink()
    lay_requirements(volume.folder, "noise")
    lay(volume.wheels, "noise", {"noise.bin": os.urandom(1 << 20)})
    environ = {
        "PATH": os.environ["PATH"],
        "PADDLE_NODE_ROOT": str(volume.folder),
        "PADDLE_NODE_ENVIRONMENT": DIGEST,
        "PADDLE_NODE_WHEELS": "/home/jobpath/wheels",
    }
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("this machine lets nobody mount")
    assert done.returncode == 74, done.stderr
    assert done.stderr.strip().endswith("make room on the volume, or raise data_resources.scratch")


@contextmanager
def index(wheels: Path, says: int = 200, certificate: Path | None = None) -> Iterator[str]:
    """Serves wheels as a package index for bob, whose password is s3cret, or `says` another thing;
    yields its host and port.
    """
    password = "Basic " + base64.b64encode(b"bob:s3cret").decode()

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            *_, name = filter(None, self.path.split("/"))
            code, page = says, b""
            if code == 200 and self.headers.get("Authorization") != password:
                code = 401
            elif name.endswith((".whl", ".gz")):
                page = (wheels / name).read_bytes()
            else:
                names = [file.name for file in wheels.glob(f"{name}-*")]
                page = "".join(f'<a href="/files/{name}">{name}</a>' for name in names).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(page)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_no_code_of_a_package_runs_beside_the_password_of_an_index(volume: Volume) -> None:
    """Also where the limits beside numpy 1.x count, and where a package needs another one from an
    address.
    """
    leak = volume.folder / "leak"
    code = f"import os; open({str(leak)!r}, 'a').write(os.environ.get('PIP_INDEX_URL', ''))\n"
    lay(volume.wheels, "evil", {"evil.pth": code})
    for name, version in (("numpy", "1.26.4"), ("pyarrow", "25.0.0"), ("pyarrow", "26.0.0")):
        wheel(volume.wheels, name, version)
    limits = volume.folder / "opt/venv/requirements-numpy1.in"
    limits.parent.mkdir(parents=True)
    limits.write_text("# Beside numpy 1.x.\npyarrow<26  # fails on import\n")
    with index(volume.wheels) as host:
        url = f"http://bob:s3cret@{host}/simple"
        wheels = {"PADDLE_NODE_WHEELS": "", "PIP_ONLY_BINARY": ":all:"}
        built = volume.build("evil", "pyarrow", "numpy<2", PIP_INDEX_URL=url, **wheels)
        sdist(volume.wheels, "thief", code)
        wheel(volume.wheels, "door", "1.0", f"thief @ http://{host}/files/thief-1.0.tar.gz")
        refused = volume.build(
            "door", home="third", PADDLE_NODE_ENVIRONMENT="cd" * 32, PIP_INDEX_URL=url, **wheels
        )
    assert refused[0] == 2 and "Package `thief` was included as a URL dependency" in refused[1]
    assert built[0] == 0 and built[1].endswith("evil==1.0, numpy==1.26.4, pyarrow==25.0.0"), built
    assert not leak.exists()
    python = volume.unpack()
    subprocess.run([python, "-c", "import pyarrow"], check=True)
    assert leak.exists()  # What would have told.


def test_an_index_that_is_down_or_refuses_is_not_blamed_on_the_requirement(
    volume: Volume,
) -> None:
    certificate = PROJECT / "tests/node/certificates/server.pem"
    with (
        index(volume.wheels) as good,
        index(volume.wheels, 503) as down,
        index(volume.wheels, certificate=certificate) as unsigned,
    ):
        urls = {
            "wrong": f"http://bob:guess@{good}/simple",
            "down": f"http://bob:s3cret@{down}/simple",
            "unsigned": f"https://bob:s3cret@{unsigned}/simple",
        }
        more = {"PADDLE_NODE_WHEELS": "", "PIP_RETRIES": "1"}
        builds = {
            name: volume.start("tiny", home=name, PIP_INDEX_URL=url, **more)
            for name, url in urls.items()
        }
        ended = {name: (build.communicate()[1], build.returncode) for name, build in builds.items()}
    for name, (code, says) in {
        "wrong": (2, "the package index answers 401: check the user and password in"),
        "down": (
            68,
            "the package index cannot be reached (server error (503 Service Unavailable) for",
        ),
        "unsigned": (2, "the package index has a certificate that the image does not trust: set"),
    }.items():
        said, returncode = ended[name]
        sentence = said.rstrip().rpartition("\n")[2]
        assert returncode == code and sentence.startswith(f"environment: {says}"), (name, said)
        assert "s3cret" not in said


LEAVES = """
import os, subprocess, sys, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    home = os.environ["PADDLE_NODE_ROOT"] + "/home/paddle"
    if "{what}" == "python":
        python = home + "/environment/bin/python3"
        os.unlink(python)
        open(python, "w").close()
    else:
        sleeper = "import time; time.sleep(60)"
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        command = [sys.executable, "-c", sleeper]
        process = subprocess.Popen(command, start_new_session=True, **nothing)
        open(home + "/pid", "w").write(str(process.pid))
    name = "{what}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        info = "{what}-1.0.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {what}\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n"
                       "Tag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


def test_what_a_build_leaves_behind_neither_runs_on_nor_replaces_the_python(
    volume: Volume,
) -> None:
    for what in ("python", "daemon"):
        sdist(volume.wheels, what, LEAVES.replace("{what}", what), "2.2")
    code, said = volume.build("python")
    assert code == 2 and "change bin/python3, which is the image's" in said, said
    assert volume.build("daemon")[0] == 0
    pid = int((volume.folder / "home/paddle/pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
