# ruff: noqa: E501 (tables, one row a line)
"""What cannot work is refused before anything is written, in one sentence that says what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from settings.errors import SettingError

PADDLEJOB = {"controller": "paddlejob", "parameter_servers": 2, "image": "demo:v1"}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trainers": 0}, "trainers must be at least 1 (found 0)"),
    ({"trainers": -3}, "trainers must be at least 1 (found -3)"),
    ({"trainers": 10001}, "trainers must be at most 10000 (found 10001)"),
    ({"trainers": "3"}, 'trainers must be a whole number (found "3"): leave the quotes out'),
    ({"trainers": True}, "trainers must be a whole number (found true)"),
    ({"trainers": 2.5}, "trainers must be a whole number (found 2.5)"),
    ({"trainer": 3}, "trainer is not a setting: did you mean trainers?"),
    ({"resources": {"memroy": "1Gi"}}, "resources.memroy is not a setting: did you mean memory?"),
    ({"passes": 0}, "passes must be at least 1 (found 0)"),
    ({"mode": "ring"}, "mode must be parameter-server, collective or single (found ring)"),
    # Names.
    ({"name": "Words"}, "name is Words: lower-case letters, digits and inner hyphens are allowed, a letter first, at most 63 (a DNS label)"),
    ({"name": "1words"}, "name is 1words: lower-case letters, digits and inner hyphens are allowed, a letter first, at most 63 (a DNS label)"),
    ({"name": "words-"}, "name is words-: lower-case letters, digits and inner hyphens are allowed, a letter first, at most 63 (a DNS label)"),
    ({"name": "w" * 48}, f"name is {'w' * 48}: at most 47 characters are allowed here, so that the host name {'w' * 48}-data-hhhhhhhh-0 fits 63"),
    ({"name": "w" * 62, "pin_names": True, "data": {"prepared": True}, "program": {"from": "volume"}}, f"name is {'w' * 62}: at most 56 characters are allowed here, so that the host name {'w' * 62}-data-0 fits 63"),
    ({"name": "words-data", "pin_names": True}, "name is words-data: with pin_names that is the data job of a job words, choose a name that does not end in -data"),
    ({"name": False}, "name must be text (found false): put it in quotes"),
    ({"namespace": "kube-system"}, "namespace is kube-system: kube-* belongs to the cluster, choose one for training jobs"),
    ({**PADDLEJOB, "name": "w" * 52, "pin_names": True}, f"name is {'w' * 52}: at most 51 characters are allowed here, so that the host name {'w' * 52}-worker-9999 fits 63"),
    # What was found is repeated short, on one line; a misspelled setting before the one that it leaves missing.
    ({"name": "a\nb"}, "name is a b: lower-case letters, digits and inner hyphens are allowed, a letter first, at most 63 (a DNS label)"),
    ({"mode": "x" * 99}, f"mode must be parameter-server, collective or single (found {'x' * 80}...)"),
    ({"Trainers": 3, "passes": 0}, "Trainers is not a setting: did you mean trainers?"),
    ({"data": {"source": ""}}, "data.source must not be empty"),
    ({"image": "UPPER:latest"}, "image is UPPER:latest: the name of an image is allowed: [registry/]repository[:tag][@sha256:<64 hex digits>], in lower case"),
    ({"image": "x@sha256:abc"}, "image is x@sha256:abc: the name of an image is allowed: [registry/]repository[:tag][@sha256:<64 hex digits>], in lower case"),
    # Ports.
    ({"ports": {"first": 65534}}, "ports.first is 65534: the parameter server's last port would be 65537, and 65535 is the highest"),
    ({"ports": {"first": 65536}}, "ports.first must be at most 65535 (found 65536)"),
    ({"ports": {"control": 7166}}, "ports.control is 7166: the parameter server listens on 7164 to 7167, choose another"),
    ({"ports": {"first": 8498}}, "ports.first is 8498: it overlaps 8500 to 8599, where trainers listen, choose another"),
    ({"ports": {"control": 8510}}, "ports.control is 8510: it overlaps 8500 to 8599, where trainers listen, choose another"),
    ({"ports": {"host_ports": True}}, "ports.host_ports is given and discovery is index: host ports belong to the tutorials' `discovery: pod-list`"),
    ({"ports": {"host_ports": [30001]}, "discovery": "pod-list"}, "ports.host_ports is given: it needs a privileged namespace of its own, and namespace is paddle"),
    ({"ports": {"host_ports": [1, 1]}, "discovery": "pod-list", "namespace": "own"}, "ports.host_ports names a port twice: each may be taken once"),
    # Modes, engines, discovery.
    ({"mode": "collective", "parameter_servers": 2}, "parameter_servers is 2: mode collective has none"),
    ({"paddle": "3.3"}, 'paddle is 3.3 and mode is parameter-server: Paddle 3 has no parameter servers; use `mode: collective`, or `paddle: "2.6"`'),
    ({"mode": "single"}, "trainers is 3: mode single has 1, use parameter-server or collective for more"),
    ({"parameter_servers": 2}, "parameter_servers is 2: with controller job each of the 3 trainer pods runs one; leave it out, or use `controller: paddlejob`"),
    ({"controller": "paddlejob", "parameter_servers": 2}, "command is missing: with controller paddlejob each pod is a parameter server or a worker: name the program that the pushed image runs, or name an image of your own"),
    ({"controller": "paddlejob"}, "parameter_servers is missing: a PaddleJob of mode parameter-server needs at least 1 beside its workers"),
    ({**PADDLEJOB, "trainers": 0}, "trainers must be at least 1 (found 0)"),
    ({**PADDLEJOB, "paddlejob": {"clean_pod_policy": "Sometimes"}}, "paddlejob.clean_pod_policy must be Always, Never, OnFailure or OnCompletion (found Sometimes)"),
    ({**PADDLEJOB, "paddlejob": {"with_gloo": 3}}, "paddlejob.with_gloo must be 0, 1 or 2 (found 3)"),
    ({**PADDLEJOB, "paddlejob": {"intranet": "Host"}}, "paddlejob.intranet is Host: it needs a privileged namespace of its own, and namespace is paddle"),
    ({**PADDLEJOB, "paddlejob": {"elastic": 1, "etcd_server": "etcd:2379"}}, "paddlejob.elastic is 1: only mode collective is elastic"),
    ({"controller": "paddlejob", "mode": "collective", "image": "demo:v1", "paddlejob": {"elastic": 1}}, "paddlejob.elastic is 1: elastic workers meet in an etcd, give its host:port as etcd_server"),
    ({"controller": "paddlejob", "mode": "collective", "image": "demo:v1", "paddlejob": {"elastic": 1, "etcd_server": "etcd:99999"}}, "paddlejob.etcd_server is etcd:99999: a port from 1 to 65535 is allowed"),
    ({**PADDLEJOB, "discovery": "pod-list"}, "discovery is pod-list: with controller paddlejob the operator tells each pod its peers, leave discovery out"),
    ({**PADDLEJOB, "gang": {"kind": "kueue", "queue": "q"}}, "gang.kind is kueue: a PaddleJob cannot be suspended, use volcano or none"),
    ({**PADDLEJOB, "keep_passes": 0}, "keep_passes is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({**PADDLEJOB, "checkpoint_minutes": 5}, "checkpoint_minutes is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({"checkpoint_minutes": -1}, "checkpoint_minutes must be at least 0 (found -1)"),
    ({"name": "shared"}, "name is shared: that folder of the volume holds the data that jobs share, choose another name"),
    ({"data": {"source": "a", "shared": True}}, "data.shared is true and command is missing: programs on paddle_node.fleet train on shards; leave shared out, or give the command that reads the folder"),
    ({"command": ["python"], "data": {"source": "a", "shared": True, "hold_out": 0.1}}, "data.hold_out is given: with `shared: true` nothing is split or copied further, leave it out"),
    ({"command": ["python"], "data": {"source": "a", "shared": True, "format": "lines"}}, "data.format is given: with `shared: true` nothing is split or copied further, leave it out"),
    ({**PADDLEJOB, "data": {"source": "a", "shared": True}}, "data.shared is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({**PADDLEJOB, "resume_from": "any"}, "resume_from is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({**PADDLEJOB, "limits": {"attempts": 3}}, "limits.attempts is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({**PADDLEJOB, "data": {"source": "a", "stage": "auto"}}, "data.stage is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({"image": "demo:v1", "gpus": {"count": 1, "parameter_servers": True}}, "gpus.parameter_servers is given: with controller job a parameter server is in each trainer's pod, which has the GPUs; leave it out"),
    ({"paddlejob": {}}, "paddlejob is given and controller is job: its settings belong to `controller: paddlejob`"),
    ({"discovery": "pod-list", "mode": "collective"}, "discovery is pod-list: collective ranks are found by index, leave discovery out"),
    ({"discovery": "pod-list", "mode": "single", "trainers": 1}, "discovery is pod-list: mode single has no peers to look for, leave discovery out"),
    ({"runtime": "pytorch"}, "runtime must be fleet-ps, collective, paddle-0.x or launch (found pytorch)"),
    ({"command": "a", "success": "output/*"}, "success is output/*: one file below output/ is allowed, without *, ? and ["),
    ({**PADDLEJOB, "namespace": "own", "network": "closed", "paddlejob": {"intranet": "Host"}}, "network is closed: with `paddlejob.intranet: Host` no policy holds for the pods, leave it out"),
    ({"runtime": "collective"}, "runtime is collective: it does not fit mode parameter-server"),
    # Resources.
    ({"resources": {"memory": "64Mi"}}, "resources.memory is 64Mi: it has to exceed shared_memory, which is 128Mi and counts against it"),
    ({"resources": {"memory": "2 GB"}}, "resources.memory is 2 GB: an amount of memory from 1Mi upwards is allowed, such as 512Mi or 2Gi"),
    ({"resources": {"memory": 512}}, "resources.memory is 512: an amount of memory from 1Mi upwards is allowed, such as 512Mi or 2Gi"),
    ({"resources": {"cpu": "0.0005"}}, "resources.cpu is 0.0005: a number of cores is allowed in steps of a thousandth, such as 500m, 0.5 or 2"),
    ({"gpus": {"node_selector": {"accelerator": "p100"}}}, "gpus.node_selector is given and gpus.count is 0: GPU settings need at least 1 GPU"),
    ({"gpus": {"parameter_servers": True}}, "gpus.parameter_servers is given and gpus.count is 0: GPU settings need at least 1 GPU"),
    ({"gpus": {"count": 1}}, "image is missing: a job with GPUs names an image that was built for CUDA (docs/jobs.md)"),
    ({"namespace_limits": {"cpu": 2, "memory": "1Ti", "pods": 9}}, "namespace_limits.cpu is 2: this job's 3 training pods alone need more, so it would never start"),
    ({"namespace_limits": {"cpu": 9, "memory": "1Ti", "pods": 2}}, "namespace_limits.pods is 2: this job's 3 training pods alone need more, so it would never start"),
    # Data and program.
    ({"data": None}, "data is missing: give its source, or `prepared: true` where the shards are on the volume"),
    ({"data": {}}, "data.source is missing: a local file, s3://bucket/prefix, https://... or a path on the volume is allowed; with `prepared: true` the shards are on the volume already"),
    ({"data": {"source": "a", "hold_out": 1}}, "data.hold_out must be less than 1 (found 1)"),
    ({"data": {"source": "a", "shards": 4}}, "data.shards is 4: trainer i reads shard i, so with 3 trainers leave it out"),
    ({"data": {"source": "a", "prepared": True}}, "data.source is a: with `prepared: true` nothing is split, so leave one of them out"),
    ({"data": {"prepared": True}}, "program.from is image: with `data.prepared: true` no data job brings the program, so `from: volume`, `from: folder` or `from: git` is needed"),
    ({"program": {"from": "configmap"}}, "program.path is missing: `from: configmap` needs it"),
    ({"program": {"path": "x"}}, "program.path is x and program.from is image: path belongs to `from: folder | configmap`"),
    ({"program": {"from": "configmap", "path": "no-such-folder"}}, "program.path is no-such-folder: there is no such folder"),
    ({"program": {"from": "folder", "path": "."}, "controller": "paddlejob", "parameter_servers": 2, "image": "demo:v1"}, "program.from is folder: the operator's pods unpack no archive, use `from: configmap` or image"),
    ({"program": {"folder": "a/b"}}, "program.folder is a/b: a path that begins with ./, or the name of one folder, is allowed"),
    ({"data": {"source": "s3://a/b", "stage": "maybe"}}, "data.stage must be auto, always or never (found maybe)"),
    ({"environment": {"JOB_NAME": "x"}}, "environment has JOB_NAME: the job sets it itself, from the setting of that meaning"),
    ({"environment": {"A=B": "x"}}, "environment has the name 'A=B': letters, digits, '_', '-' and '.' are allowed, no digit and no '..' first, not '.' alone, at most 253"),
    ({"environment": {"..x": "x"}}, "environment has the name '..x': letters, digits, '_', '-' and '.' are allowed, no digit and no '..' first, not '.' alone, at most 253"),
    ({"environment": {".": "x"}}, "environment has the name '.': letters, digits, '_', '-' and '.' are allowed, no digit and no '..' first, not '.' alone, at most 253"),
    ({"environment": {"A": "x" * 131_070}}, "environment.A has 131072 bytes: Linux starts no program with more than 131071"),
    ({"environment": {f"A{i}": "x" * 90_000 for i in range(3)}}, "environment has 270030 bytes as JSON: 250000 are allowed"),
    ({"arguments": ["a", "ä" * 65_536]}, "arguments.1 has 131072 bytes: Linux starts no program with more than 131071"),
    ({"environment": {"A": False}}, "environment.A must be text (found false): put it in quotes"),
    ({"arguments": "--a --b"}, "arguments must be a list (found --a --b)"),
    ({"command": []}, "command is empty: leave it out, or name the program to run"),
    # Commands.
    ({"command": ["", "train.py"]}, "command is empty: leave it out, or name the program to run"),
    ({"command": {"python": "train.py"}}, "command is {'python': 'train.py'}: a line whose quotes are closed, or a list of words, is allowed"),
    ({"command": "FOO=1 python train.py"}, "command begins with FOO=1: no shell reads it, so variables belong into environment"),
    ({"command": "cd tools && python train.py"}, "command has the word &&: no shell reads it; a script is allowed, or bash -c '...'"),
    ({"checkpoint_minutes": 1e308}, "checkpoint_minutes must be at most 525600 (found 1e+308)"),
    ({"command": "python 'train.py"}, "command is python 'train.py: a line whose quotes are closed, or a list of words, is allowed"),
    ({"command": "python -m paddle.distributed.launch --nnodes 5 train.py"}, "command has --nnodes 5 and trainers is 3: leave the flag out, or make them equal"),
    ({"command": "fleetrun --ips=10.0.0.1,10.0.0.2 train.py"}, "command has --ips of 2 machines and trainers is 3: leave the flag out, or make them equal"),
    ({"command": "python -m paddle.distributed.launch --gpus 0,1"}, "command is python -m paddle.distributed.launch --gpus 0,1: a program is missing behind Paddle's launcher"),
    ({"command": "python train.py {dat}"}, "command has {dat}, which is no placeholder: {data}, {output}, {rank}, {trainers}, {shard} are, and {{ and }} stand for braces"),
    ({"command": "a", "environment": {"A": '{"x": 1}'}}, """environment.A has {"x": 1}, which is no placeholder: {data}, {output}, {rank}, {trainers}, {shard} are, and {{ and }} stand for braces"""),
    ({"command": "a", "resume": "--resume x"}, "resume names 0 patterns: one {newest:<glob>} or {newest_stem:<glob>} is needed"),
    ({"command": "a", "resume": "{newest:/etc/*}"}, "resume is /etc/*: a path below output/ is allowed, without .."),
    ({"command": "a", "success": "output/../x"}, "success is output/../x: a path below output/ is allowed, without .."),
    ({"command": "a", "runtime": "collective", "mode": "collective"}, "command is given and runtime is collective: launch and fleet-ps take one"),
    ({"command": "a", "image": "i", "gpus": {"count": 2}, "processes": 4}, "processes is 4: gpus.count is 2, at most one for each GPU is allowed"),
    ({"command": "a", "runtime": "fleet-ps", "processes": 2}, "processes is 2: runtime fleet-ps has one pserver and one trainer a pod, leave it out"),
    ({"progress": "output/*"}, "progress is given and command is missing: it belongs to a command"),
    ({"runtime": "launch"}, "command is missing: runtime launch needs the line that trains"),
    ({**PADDLEJOB, "processes": 2}, "processes is given: with controller paddlejob nothing in the pods reads it, leave it out"),
    ({"data": {"source": "https://a:99999/b"}}, "data.source is https://a:99999/b: a host, and a port from 1 to 65535, are allowed in an address"),
    # Volume.
    ({"volume": {"kind": "none"}}, "volume.kind is none: with controller job data, program and output are on a volume; efs, nfs, host-path or claim is allowed"),
    ({"volume": {"kind": "claim"}}, "volume.claim is missing: `kind: claim` needs the name of a PersistentVolumeClaim in the job's namespace"),
    ({"volume": {"kind": "host-path", "path": "/"}}, "volume.path is /: `kind: host-path` needs a folder of the node that is not /"),
    ({"volume": {"server": "10.0.0.1"}}, "volume.server is given and volume.kind is efs: server belongs to nfs"),
    ({"volume": {"kind": "claim", "claim": "c", "mount_options": ["hard"]}}, "volume.mount_options is given and volume.kind is claim: mount_options belongs to efs and nfs"),
    ({"volume": {"kind": "nfs", "mount_options": ["hard,nfsvers=4.1"]}}, "volume.mount_options has 'hard,nfsvers=4.1': each entry is one option, without spaces and commas"),
    ({"volume": {"file_system_id": "fs-0123456789"}}, "volume.access_point_id is missing: file_system_id and access_point_id name a file system of yours together"),
    ({"volume": {"mount_path": "home"}}, "volume.mount_path is home: an absolute path is allowed, such as /home/jobpath"),
    ({"volume": {"mount_path": "/my jobs"}}, "volume.mount_path is /my jobs: an absolute path other than / is allowed, without colons, spaces, quotes and a shell's other special characters, such as /home/jobpath"),
    ({"volume": {"mount_path": "/home/paddle"}}, "volume.mount_path is /home/paddle: the pod has scratch there, choose another path"),
    # Placement and gangs.
    ({"scheduling": {"zone": "us-west"}}, r"scheduling.zone is us-west: a zone such as us-west-2a is allowed"),
    ({"scheduling": {"node_selector": {"a b": "c"}}}, "scheduling.node_selector is {'a b': 'c'}: a b is no label's name: letters, digits, '-', '_' and '.' are allowed, at most 63"),
    ({"scheduling": {"tolerations": [{"operator": "Exists", "value": "x"}]}}, "scheduling.tolerations has Exists with the value x: Exists takes no value"),
    ({"scheduling": {"node_selector": {"topology.kubernetes.io/zone": "a"}, "zone": "us-west-2a"}}, "scheduling.zone is us-west-2a: node_selector names another zone, leave one of them out"),
    ({"scheduling": {"tolerations": [{"key": "a b"}]}}, "scheduling.tolerations has the key a b: letters, digits, '-', '_' and '.' are allowed, at most 63"),
    ({"scheduling": {"tolerations": [{"key": "a", "value": "b c"}]}}, "scheduling.tolerations has the value b c: letters, digits, '-', '_' and '.' are allowed, at most 63"),
    ({"gang": {"queue": "q"}}, "gang.queue is given and gang.kind is none: volcano or kueue has queues"),
    ({"gang": {"kind": "kueue"}}, "gang.queue is missing: Kueue admits a job through a LocalQueue of its namespace"),
    ({"limits": {"hours": 0}}, "limits.hours must be more than 0.001 (found 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_refused_in_one_sentence(settings: dict[str, Any], sentence: str, job: Callable[..., TrainingJob]) -> None:
    with pytest.raises(SettingError) as refusal:
        job(**settings)
    assert sentence in str(refusal.value).splitlines()


FILES = {
    "name: x\nname: y\n": "job.yaml is not valid YAML: line 2: name is given twice",
    "- a\n": "job.yaml holds a list: allowed are `setting: value` lines",
    "": "job.yaml holds nothing: allowed are `setting: value` lines",
    "name: [\n": "job.yaml is not valid YAML: line 2: expected the node content, but found '<stream end>'",
    "name: x\ndata: {source: a}\n": "trainers is missing: How many pods train. In mode parameter-server of controller job each runs a parameter server and a trainer",
    "1: x\n": "job.yaml is not valid YAML: line 1: the key 1 is no text: put it in quotes",
    "~: x\n": "job.yaml is not valid YAML: line 1: the key ~ is no text: put it in quotes",
    "? [a, 1]\n: x\n": "job.yaml is not valid YAML: line 1: a list or a group of settings stands where the name of a setting belongs",
    "3\n": "job.yaml holds one value: allowed are `setting: value` lines",
    "Trainers: 3\nname: x\ndata: {source: a}\n": "Trainers is not a setting: did you mean trainers?",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_that_is_no_job_is_refused_in_one_sentence(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    with pytest.raises(SettingError) as refusal:
        TrainingJob.load(Path("job.yaml"))
    assert str(refusal.value) == FILES[text]


def test_every_wrong_setting_is_said_at_once(job: Callable[..., TrainingJob]) -> None:
    """A rule between settings too, where none of those is wrong by itself: `discovery` is, and the rule about it is not asked."""
    with pytest.raises(SettingError) as refusal:
        job(
            mode="collective",
            parameter_servers=2,
            runtime="pytorch",
            pases=5,
            discovery="pods",
            ports={"first": 65534, "host_ports": [1, 1]},
            resources={"cpu": "many"},
        )
    assert str(refusal.value).splitlines() == [
        "pases is not a setting: did you mean passes?",
        "discovery must be index or pod-list (found pods)",
        "runtime must be fleet-ps, collective, paddle-0.x or launch (found pytorch)",
        "ports.first is 65534: the parameter server's last port would be 65537, and 65535 is the highest",
        "ports.host_ports names a port twice: each may be taken once",
        "resources.cpu is many: a number of cores is allowed in steps of a thousandth, such as 500m, 0.5 or 2",
        "parameter_servers is 2: mode collective has none",
    ]


def test_yaml_may_share_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: x\ntrainers: 1\ndata: {source: a}\nresources: &small {cpu: 1}\ndata_resources: {<<: *small, memory: 1Gi}\n"
    )
    assert TrainingJob.load(path).data_resources.cpu == "1"


@pytest.mark.parametrize(
    "image",
    ["a", "a:1", "a/b_c:v1.2", "localhost:5000/a/b", "Registry.example/a@sha256:" + "0" * 64, "r.example/a:t@sha256:" + "0" * 64],
)
def test_names_of_images(image: str, job: Callable[..., TrainingJob]) -> None:
    assert job(image=image).image == image


def test_a_missing_file_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingError, match=r"no-such\.yaml is missing: name an existing settings file"):
        TrainingJob.load(Path("no-such.yaml"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "is no outputs file of cdk deploy: it has to map each stack to its outputs"),
        ("{", "is no outputs file of cdk deploy: it is not valid JSON"),
        ('{"s": {"Region": 1}}', "is no outputs file of cdk deploy: it has to map each stack to its outputs"),
        ("{}", "lacks the output FileSystemId: deploy all stacks with"),
        (
            '{"s": {"DataJobCredentials": "keys"}}',
            "has DataJobCredentials keys: pod-identity or instance-profile is allowed",
        ),
        (
            '{"s": {"HostPorts": "some"}}',
            "has HostPorts some: open or closed is allowed",
        ),
        (
            '{"a": {"FileSystemId": "fs-1"}, "b": {"FileSystemId": "fs-2"}}',
            "has FileSystemId of 2 clusters: keep the stacks of one cluster in it",
        ),
    ],
)
def test_outputs_that_are_none_are_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "outputs.json"
    path.write_text(text)
    with pytest.raises(SettingError) as refusal:
        ClusterOutputs.load(path)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"ports": {"host_ports": True}, "discovery": "pod-list"},
            "ports.host_ports is given: the nodes of this self-managed cluster let only the pod network through, "
            "so leave it and discovery out",
        ),
        (
            {**PADDLEJOB, "paddlejob": {"intranet": "Host"}},
            "paddlejob.intranet is Host: the nodes of this self-managed cluster let only the pod network through, so leave it out",
        ),
    ],
)
def test_a_job_at_its_nodes_ports_is_refused_where_these_are_closed(
    settings: dict[str, Any], sentence: str, job: Callable[..., TrainingJob], outputs: ClusterOutputs, image: str
) -> None:
    with pytest.raises(SettingError) as refusal:
        documents(job(namespace="mine", **settings), replace(outputs, host_ports=False), image)
    assert str(refusal.value) == sentence


def test_a_program_that_no_config_map_can_hold_is_refused(tmp_path: Path, job: Callable[..., TrainingJob]) -> None:
    program = tmp_path / "mine"
    program.mkdir()

    def sentence() -> str:
        settings = {"name": "x", "trainers": 1, "data": {"source": "a"}, "program": {"from": "configmap", "path": "mine"}}
        with pytest.raises(SettingError) as refusal:
            TrainingJob.parse(settings, folder=tmp_path)
        return str(refusal.value)

    assert "the folder is empty" in sentence()
    (program / "train.py").write_bytes(b"\xff\xfe")
    assert "only readable UTF-8 text" in sentence()
    (program / "train.py").write_text("x" * 250_001)
    assert "250000 are allowed" in sentence()
    # What `kubectl apply` writes to an annotation is JSON, and escaped by Go: 60,000 of these are 360,000 bytes.
    (program / "train.py").write_text("<" * 60_000)
    assert "250000 are allowed" in sentence()
    (program / "train.py").write_text("")
    (program / "pkg").mkdir()
    assert "a ConfigMap holds files only" in sentence()
