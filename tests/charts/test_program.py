"""A user's own program: from a folder or a commit to the variable that names its archive, or to a
refusal in one sentence.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from paddle_node import contract
from paddle_node.failure import Failure
from paddle_node.staging import program_archive
from paddle_node.volume.job_folder import JobFolder

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program_archive import ProgramArchive
from paddle_settings.errors import SettingError


def git(folder: Path, *arguments: str) -> str:
    settings = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.check_output(
        ["git", *settings, "-C", str(folder), *arguments], text=True, stderr=subprocess.PIPE
    ).strip()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a subfolder, a link, a script, an ignored file and an untracked file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    (folder / "tools" / "__pycache__").mkdir(parents=True)
    (folder / "tools" / "__pycache__" / "x.pyc").write_text("left behind")
    (folder / "tools" / "train.py").write_text("print('one')\n")
    (folder / "train.py").touch()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "latest").symlink_to("tools/train.py")
    (folder / ".gitignore").write_text("*.data\n")
    (folder / "large.data").write_text("left behind")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    (folder / "new.py").write_text("two\n")
    return folder


MINE = {"from": "folder", "path": "mine"}


def parsed(folder: Path, program: dict[str, Any], **more: Any) -> TrainingJob:
    settings = {
        "name": "words",
        "trainers": 2,
        "data": {"source": "s3://corpus/words"},
    } | ({} if "command" in more else {"mode": "collective"})
    return TrainingJob.parse(settings | {"program": program} | more, folder)


def archive(job: TrainingJob) -> ProgramArchive:
    assert job.program.archive is not None
    return job.program.archive


def list_archives(job: TrainingJob, outputs: ClusterOutputs) -> list[str | None]:
    """Returns the archive named to each container, of the data job and of the trainers."""
    jobs = [document for document in documents(job, outputs, "image") if document["kind"] == "Job"]
    env = [
        {
            variable["name"]: variable.get("value")
            for variable in job["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        for job in jobs
    ]
    return [variables.get(contract.Variable.PROGRAM_ARCHIVE) for variables in env]


def test_a_folder_reaches_the_pod_as_its_checkout_is(
    program: Path, tmp_path: Path, outputs: ClusterOutputs
) -> None:
    job = parsed(tmp_path, {"folder": "./mine"})
    digest = archive(job).digest
    same = parsed(tmp_path, {"from": "folder", "path": "./mine"})
    assert (job.model_dump(), archive(job)) == (same.model_dump(), archive(same))
    assert list_archives(job, outputs) == [None, digest], (
        "the split has nothing to do with a program without a reader"
    )
    reads = parsed(
        tmp_path, MINE, data={"source": "s3://corpus/words", "format": "tools.train:records"}
    )
    assert list_archives(reads, outputs) == [digest, digest]

    folder = JobFolder(tmp_path / "volume")
    folder.programs.mkdir(parents=True)
    archive(job).write(folder.archive(digest))
    place = program_archive.unpack(folder, digest, tmp_path / "home" / "program")
    files = {path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()}
    assert files == {".gitignore", "latest", "new.py", "run.sh", "tools/train.py", "train.py"}
    assert (
        str((place / "latest").readlink()) == "tools/train.py"
        and (place / "latest").read_text() == "print('one')\n"
    )
    assert (place / "run.sh").stat().st_mode & 0o777 == 0o755
    (place / "tools" / "train.py").write_text("the pod's own copy can be written")
    (place / "leftover").write_text("of a container that was killed")
    program_archive.unpack(folder, digest, place)
    assert (
        not (place / "leftover").exists()
        and (place / "tools" / "train.py").read_text() == "print('one')\n"
    )

    # The same files have the same name at another time.
    os.utime(program / "new.py", (1, 1))
    assert archive(parsed(tmp_path, MINE)).digest == digest
    (program / "new.py").write_text("three\n")
    assert archive(parsed(tmp_path, MINE)).digest != digest


def test_a_commit_is_fetched_once_and_then_read_without_network(
    program: Path, tmp_path: Path
) -> None:
    commit = git(program, "rev-parse", "HEAD")
    settings = {"from": "git", "repository": f"file://{program}", "commit": commit}
    with pytest.raises(
        SettingError, match="not on this machine yet, `paddle-aws submit --dry-run` fetches it"
    ):
        parsed(tmp_path, settings)
    file = tmp_path / "job.yaml"
    job = {
        "name": "words",
        "trainers": 2,
        "mode": "collective",
        "data": {"source": "s3://a/b"},
        "program": settings,
    }
    file.write_text(yaml.safe_dump(job))
    git(program, "config", "uploadpack.allowAnySHA1InWant", "true")
    fetched = archive(TrainingJob.load(file, fetch=True))
    assert fetched.names == (".gitignore", "latest", "run.sh", "tools/train.py", "train.py"), (
        "what is committed, and no more"
    )

    (program / ".git").rename(tmp_path / "gone")
    assert archive(TrainingJob.load(file)) == fetched
    assert archive(parsed(tmp_path, settings | {"folder": "tools"})).names == ("train.py",)
    with pytest.raises(
        SettingError, match=f"program.folder is none: commit {commit} has no such folder"
    ):
        parsed(tmp_path, settings | {"folder": "none"})

    # Somebody changed the cache: it no longer holds the commit.
    (fetched.root / "run.sh").write_text("changed")
    with pytest.raises(SettingError, match=r"program.commit cannot be read: git says fatal: "):
        TrainingJob.load(file, fetch=True)


ARCHIVES = yaml.safe_load(Path(__file__).with_name("hostile_archives.yaml").read_text())
KINDS = {"link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}


@pytest.mark.parametrize(("members", "digest"), ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_of_other_bytes_or_that_leads_out_of_the_folder_is_refused(
    tmp_path: Path, members: list[list[str]], digest: str
) -> None:
    folder = JobFolder(tmp_path / "volume")
    folder.programs.mkdir(parents=True)
    archive = tmp_path / "archive.tar"
    with tarfile.open(archive, "w") as tar:
        for name, *kind in members:
            member = tarfile.TarInfo(name)
            if kind:
                member.type, member.linkname = KINDS[kind[0]], kind[-1]
            tar.addfile(member)
    digest = digest or hashlib.sha256(archive.read_bytes()).hexdigest()
    if members:
        archive.rename(folder.archive(digest))
    with pytest.raises(Failure) as caught:
        program_archive.unpack(folder, digest, tmp_path / "home" / "program")
    assert (
        caught.value.code == 2
        and not (tmp_path / "home" / "program").exists()
        and not (tmp_path / "out").exists()
    )


REFUSED = yaml.safe_load(Path(__file__).with_name("refused_programs.yaml").read_text())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [tuple(row.values()) for row in REFUSED],
    ids=lambda value: str(value)[:40],
)
def test_refused(program: Path, tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    if "no train.py" in sentence:
        (program / "train.py").unlink()
    with pytest.raises(SettingError) as caught:
        parsed(tmp_path, settings)
    assert str(caught.value) == sentence.format(tmp_path)


def test_what_the_folder_holds_is_refused(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program / "new.py").write_text("x" * (1 << 20))
    with pytest.raises(
        SettingError,
        match=r"resources.scratch is 1Mi: the program has 1,048,\d+ bytes, which each pod unpacks",
    ):
        parsed(tmp_path, MINE, resources={"scratch": "1Mi"})
    (tmp_path / "other").write_text("of another's")
    (program / "out").symlink_to("../other")
    with pytest.raises(
        SettingError, match=r"program.path has the link .*/mine/out, which leads out of the folder"
    ):
        parsed(tmp_path, MINE)
    with pytest.raises(SettingError, match=r"program.folder has the link .*/mine/out, which leads"):
        parsed(tmp_path, {"folder": "./mine"})
    (program / "out").unlink()
    with pytest.raises(
        SettingError, match=r"command names tools/none.py: .*/mine has no such file"
    ):
        parsed(
            tmp_path,
            MINE,
            command="python -m paddle.distributed.launch --nnodes 1 tools/none.py -c x.py",
        )
    monkeypatch.setattr(contract, "PROGRAM_LIMIT", 1000)
    with pytest.raises(
        SettingError,
        match=r"its files have 1,048,\d+ bytes, 1 to 1,000 are allowed; let .gitignore leave out",
    ):
        parsed(tmp_path, MINE)


@pytest.mark.parametrize(
    ("file", "content", "refused"),
    [
        ("train.py", b"\xff\xfe", "only readable UTF-8 text"),
        # `kubectl apply` writes JSON, escaped by Go, to an annotation: 60,000 of these become
        # 360,000 bytes.
        ("train.py", b"<" * 60_000, "250000 are allowed"),
        ("pkg/train.py", b"pass", "a ConfigMap holds files only"),
    ],
)
def test_what_no_config_map_can_hold_is_refused(
    tmp_path: Path, file: str, content: bytes, refused: str
) -> None:
    path = tmp_path / "mine" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(SettingError, match=refused):
        parsed(tmp_path, {"from": "configmap", "path": "mine"})


def test_a_commands_program_is_the_job_files_folder_if_it_names_none(
    tmp_path: Path, outputs: ClusterOutputs
) -> None:
    job_file = tmp_path / "job.yaml"
    (tmp_path / "train.py").write_text("print('mine')\n")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "0001-words-data.k8s.yaml").write_text("of an earlier `manifests`")
    for program in ("", "program: {requirements: [six]}\n"):
        job_file.write_text(f"name: words\ntrainers: 2\n{program}command: python train.py\n")
        job = TrainingJob.load(job_file)
        assert archive(job).names == ("train.py",)
        assert archive(job).digest in list_archives(job, outputs)
    job_file.write_text("name: words\ntrainers: 2\ncommand: python none.py\n")
    with pytest.raises(SettingError, match=f"command names none.py: {tmp_path} has no such file"):
        TrainingJob.load(job_file)


SECRETS = yaml.safe_load(Path(__file__).with_name("secret_files.yaml").read_text())


@pytest.fixture(params=["checkout", "no checkout", "no git", "ignored by the checkout around it"])
def unpacked(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder `mine`, once as each kind that git knows or does not."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("pass\n")
    if request.param == "checkout":
        git(folder, "init", "--quiet")
    if request.param == "ignored by the checkout around it":
        git(tmp_path, "init", "--quiet")
        (tmp_path / ".gitignore").write_text("mine/\n")
    if request.param == "no git":
        git(folder, "init", "--quiet")
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return folder


def test_gitignore_holds_in_every_folder(unpacked: Path, tmp_path: Path) -> None:
    for name, text in SECRETS["ignored"].items():
        file = unpacked / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    assert list(archive(parsed(tmp_path, MINE)).names) == SECRETS["sent"]


@pytest.mark.parametrize("name", SECRETS["refused"])
def test_what_looks_like_a_secret_is_refused_unless_it_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine" / name
    file.parent.mkdir(parents=True)
    (tmp_path / "mine" / "train.py").write_text("pass\n")
    file.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n" if name == "notes" else "x")
    for kind in ("folder", "configmap"):
        with pytest.raises(SettingError) as caught:
            parsed(tmp_path, {"from": kind, "path": "mine"})
        assert str(caught.value) == (
            f"program.path has {name}: that looks like a secret, which everybody who reads the "
            f"volume could read; let .gitignore leave it out, or name it in `program.include: "
            f"[{name}]`"
        )
    assert name in archive(parsed(tmp_path, MINE | {"include": [name]})).names
    if "/" in name:
        with pytest.raises(SettingError, match="looks like a secret"):
            parsed(tmp_path, MINE | {"include": [name.partition("/")[0]]})


def test_harmless_names_are_no_secrets(program: Path, tmp_path: Path) -> None:
    for name in SECRETS["harmless"]:
        (program / name).write_text("x")
    assert set(archive(parsed(tmp_path, MINE)).names) >= set(SECRETS["harmless"])


def test_what_is_named_is_sent_although_git_ignores_it(program: Path, tmp_path: Path) -> None:
    job = parsed(tmp_path, MINE | {"include": ["large.data", "tools"]})
    assert {"large.data", "tools/train.py"} < set(archive(job).names)
    for name in ("none", "../other", "/etc/passwd", "."):
        with pytest.raises(SettingError, match=rf"program.include has {name}: .*has no such file"):
            parsed(tmp_path, MINE | {"include": [name]})
    with pytest.raises(SettingError, match=r"program.include is given: it counts only with"):
        parsed(tmp_path, {"include": ["x"]})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_folder_that_git_refuses_to_read_is_a_sentence(program: Path, tmp_path: Path) -> None:
    os.chown(program, 65534, 65534)
    os.chown(program / ".git", 65534, 65534)
    with pytest.raises(SettingError) as caught:
        parsed(tmp_path, MINE)
    assert str(caught.value) == (
        f"program.path is {program}: git refuses to read it (detected dubious ownership in "
        f"repository at '{program}'): run `git config --global --add safe.directory {program}` if "
        "you trust it"
    )


def test_a_broken_checkout_is_a_sentence_and_runs_no_program_of_its_own(
    program: Path, tmp_path: Path
) -> None:
    git(program, "config", "core.fsmonitor", f"touch {tmp_path}/ran; true")
    parsed(tmp_path, MINE)
    assert not (tmp_path / "ran").exists()
    (program / ".git" / "index").write_text("cut")
    with pytest.raises(
        SettingError, match=r"mine: git refuses to read it \(.*\): mend the checkout"
    ):
        parsed(tmp_path, MINE)


def test_an_empty_submodule_is_one_sentence(program: Path, tmp_path: Path) -> None:
    allow = ("-c", "protocol.file.allow=always")
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "--quiet")
    git(main, *allow, "submodule", "--quiet", "add", str(program), "third_party")
    git(main, "commit", "--quiet", "--message", "one")
    with_files = archive(
        parsed(tmp_path, {"folder": "./main"}, command="python third_party/train.py")
    )
    assert "third_party/tools/train.py" in with_files.names
    git(tmp_path, "clone", "--quiet", str(main), "clone")
    says = "which is empty: run `git submodule update --init --recursive` in a clone"
    for settings in (
        {"folder": "./clone"},
        {"from": "git", "repository": f"file://{main}", "commit": git(main, "rev-parse", "HEAD")},
    ):
        job = {"name": "j", "trainers": 1, "command": "python x", "program": settings}
        with pytest.raises(SettingError) as caught:
            TrainingJob.parse(job, tmp_path, fetch=True)
        assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_changes_is_named_and_the_commands_own_output_is_left_out(
    program: Path, tmp_path: Path
) -> None:
    job = archive(parsed(tmp_path, MINE))
    (program / "new.py").write_text("other\n")
    with pytest.raises(SettingError, match=r"mine: new.py changed while it was read; run the"):
        job.write(tmp_path / "x.tar")
    (program / "new.py").unlink()
    with pytest.raises(SettingError, match=r"mine: new.py changed while it was read; run the"):
        job.write(tmp_path / "x.tar")

    code = (
        "from pathlib import Path; from k8s_charts.spec import TrainingJob as Job; "
        "a = Job.load(Path('job.yaml')).program.archive; print(*a.names, flush=True); "
        "a.write(Path('../out.tar'))"
    )
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "train.py").touch()
    (tmp_path / "alone" / "a.txt").write_text("a")
    (tmp_path / "alone" / "job.yaml").write_text("{name: a, trainers: 1, command: python train.py}")
    for _ in range(2):
        with (tmp_path / "alone" / "out.txt").open("a") as out:
            subprocess.run(
                [sys.executable, "-c", code], cwd=tmp_path / "alone", check=True, stdout=out
            )
    assert (tmp_path / "alone" / "out.txt").read_text() == "a.txt train.py\n" * 2


def test_what_is_left_out_is_said_with_the_rule(unpacked: Path, tmp_path: Path) -> None:
    for name, text in SECRETS["ignored"].items():
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / name).write_text(text)
    said = SECRETS["said"].format(unpacked)
    assert archive(parsed(tmp_path, MINE)).describe() == said


def test_requirements_may_be_as_long_as_a_config_map_holds(tmp_path: Path) -> None:
    line = f"six==1.16.0 --hash=sha256:{'0' * 64}"
    settings = {"from": "volume", "folder": "mine", "requirements": [line] * 10_000}
    assert len(parsed(tmp_path, settings).program.requirements_text) == 900_000 + 10_000
    settings["requirements"] = [line] * 11_000
    with pytest.raises(SettingError, match=r"requirements has 1,001,000 bytes, 1,000,000 are"):
        parsed(tmp_path, settings)


def test_an_edit_of_the_job_file_in_the_programs_folder_leaves_the_program_as_it_is(
    program: Path,
) -> None:
    job_file, digests = program / "job.yaml", set()
    for settings in ("trainers: 2", "trainers: 2\nthreads: 2"):
        job_file.write_text(
            f"name: j\n{settings}\ncommand: python train.py\nprogram: {{folder: .}}"
        )
        job = archive(TrainingJob.load(job_file))
        assert "job.yaml" not in job.names and "train.py" in job.names
        digests.add(job.digest)
    (program / "other.yaml").write_text("name: j\n")
    assert len(digests) == 1 and archive(TrainingJob.load(job_file)).digest not in digests


@pytest.mark.parametrize(
    ("command", "mode", "text", "says"),
    [
        (
            "bash run.sh",
            0o755,
            "set -e\r\npython train.py\r\n",
            "command names run.sh, whose lines",
        ),
        ("./run.sh", 0o755, "#!/bin/sh\r\n", "command names ./run.sh, whose lines"),
        (
            "./run.sh",
            0o644,
            "#!/bin/sh\n",
            "command begins with ./run.sh, which may not",
        ),
        ("bash run.sh", 0o644, "python train.py\n", ""),
        ("python run.sh", 0o644, "x\n", ""),
    ],
)
def test_a_script_that_no_shell_runs_is_named_as_such(
    tmp_path: Path, command: str, mode: int, text: str, says: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.sh").write_bytes(text.encode())
    (tmp_path / "mine" / "run.sh").chmod(mode)
    if not says:
        parsed(tmp_path, MINE, command=command)
        return
    with pytest.raises(SettingError) as caught:
        parsed(tmp_path, MINE, command=command)
    assert str(caught.value).startswith(says)


def test_a_bare_word_is_a_program_of_the_image(tmp_path: Path) -> None:
    """PaddleGAN has an empty file of the name python."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "python").touch()
    (tmp_path / "mine" / "train.py").write_text("pass\n")
    parsed(tmp_path, MINE, command="python train.py")
