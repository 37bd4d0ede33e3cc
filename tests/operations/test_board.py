"""`board` on a cluster: the list of jobs, what a browser shows of a job through the inspection pod,
who gets an answer, and what `status` says of time.
"""

import http.client
import http.server
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from commands import Run
from job_controller import JobController, Script
from paddle_node.volume.goodput import Goodput
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.progress import Progress

pytestmark = pytest.mark.slow

BROWSER = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--virtual-time-budget=20000",
    "--dump-dom",
)
AXE = Path(__file__).with_name("axe.mjs")
VISUALDL = b"\n\x1a\x08\x07\x12\ntrain/loss\x18\xcc\xb6\xe6\xc8\xa04%\x00\x00\x00?"
"""One scalar, as VisualDL 2.5.3 writes it: train/loss 0.5 at step 7."""


def measured(job: JobFolder, ranks: int = 2, points: int = 50) -> None:
    """Writes what the ranks of two attempts leave; each rank's last line is cut short."""
    attempt = {
        "run": "run",
        "resume": {},
        "started": 1e9,
        "ended": 1e9 + 100,
        "cause": "<b>a pod</b> was lost",
        "made": "",
    }
    first = {"waiting": 10.0, "starting": 20.0, "training": 40.0, "lost": 30.0}
    second = {
        **attempt,
        "number": 2,
        "started": 1e9 + 100,
        "ended": 1e9 + 200,
        "cause": "done",
        "seconds": {"training": 100.0},
    }
    job.run_state.mkdir(parents=True)
    # An earlier run, which was killed together with its recorder.
    killed = {**attempt, "number": 0, "run": "before", "cause": None, "ended": 0.0, "seconds": {}}
    attempts = {
        "attempts": [killed, {**attempt, "number": 1, "seconds": first}, second],
        "outcomes": {},
    }
    (job.run_state / "attempts.json").write_text(json.dumps(attempts))
    for rank in range(ranks):
        lines = []
        for number in (1, 2):
            for step in range(1, points + 1):
                spent = {
                    "data": 0.0,
                    "training": step * (1.0 + rank),
                    "saving": 0.0,
                    "slowest": 0.0,
                }
                spent["kept_training"] = min(spent["training"], 20 * (1.0 + rank))
                moment = 1e9 + 100 * number - 100 + 2 * step
                line = {
                    "attempt": number,
                    "step": step,
                    "time": moment,
                    "pass": 0,
                    "records": step,
                    "spent": spent,
                }
                line["kept"] = 20 if step >= 20 else 0
                lines.append(
                    json.dumps(
                        {**line, "metrics": {"loss": 1 / step, "<b>accuracy</b>": step / points}}
                    )
                )
        job.node(rank).mkdir(parents=True, exist_ok=True)
        job.steps(rank, rank).write_text("\n".join(lines) + '\n{"attempt": 2, "st')


PRICES = {
    "read": "2026-01-02",
    "source": "a test",
    "region": "us-west-2",
    "prices": {"m5.large-hour": {"usd": "0.36"}},
}


def priced(folder: Path) -> None:
    """Writes what `lock prices` would have read."""
    (folder / "cluster.yaml").write_text("retain: false")
    (folder / "locks").mkdir()
    (folder / "locks/prices.json").write_text(json.dumps(PRICES))


def first_pod(api: JobController) -> str:
    """Returns the name of trainer 0's newest pod."""
    index = "batch.kubernetes.io/job-completion-index"
    pods = [pod["metadata"] for pod in api.of("trainer", "pods")]
    return [pod["name"] for pod in pods if pod["annotations"][index] == "0"][-1]


EXPOSITION = """# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",namespace="paddle",pod="POD"} 80
DCGM_FI_DEV_GPU_UTIL{gpu="1",namespace="paddle",pod="POD"} 90
DCGM_FI_DEV_FB_USED{gpu="0",namespace="paddle",pod="POD"} 1024
DCGM_FI_DEV_FB_USED{gpu="1",namespace="paddle",pod="POD"} 1024
DCGM_FI_DEV_GPU_UTIL{gpu="2",namespace="theirs",pod="POD"} 1
"""


@pytest.fixture
def address(api: JobController, job: JobFolder, folder: Path) -> Iterator[str]:
    """Yields the address of the board of all jobs."""
    measured(job)
    priced(folder)
    api.say(first_pod(api), f"[agent 0] {Goodput({'waiting': 60.0, 'training': 140.0}).line()}")
    far = Progress(2, loss=0.25, pass_number=2, passes=3, records_per_second=27.0)
    api.say(first_pod(api), f"[agent 0] {far.line()}")
    # What a hostile program may leave behind.
    (job.output / "node_7").mkdir()
    (job.output / "node_7/steps-7.jsonl").symlink_to("/etc/passwd")
    (job.output / "node_8").mkdir()
    (job.output / "node_8/steps-8.jsonl").write_bytes(
        b"\xff" * 10_000_000 + b'\n{"metrics": {"loss": {}}}\n{"metrics": 3}\n[]\n'
    )
    os.mkfifo(job.output / "node_8/steps-9.jsonl")
    (job.output / "node_8/steps-old.jsonl").write_bytes(job.steps(0, 0).read_bytes())
    (job.output / "node_8" / os.fsdecode(b"tfevents\xff")).touch()
    (job.output / "log").mkdir()
    (job.output / "log/vdlrecords.1.log").write_bytes(struct.pack("<Q", len(VISUALDL)) + VISUALDL)
    command = [sys.executable, "-m", "paddle_aws.operations.main", "board", "--no-browser"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as board:
        assert board.stderr is not None
        yield next(match[0] for line in board.stderr if (match := re.search(r"http://\S+", line)))
        board.send_signal(signal.SIGINT)
        assert board.stderr.read().strip().endswith("the board is closed")
    assert board.returncode == 130


@pytest.fixture
def exporter(api: JobController, address: str) -> Iterator[None]:
    """A metrics server, and dcgm-exporter on the node of trainer 0, in a form that both have."""
    name, pod = "dcgm-exporter-x", first_pod(api)
    (node,) = (
        each["spec"]["nodeName"]
        for each in api.of("trainer", "pods")
        if each["metadata"]["name"] == pod
    )
    labels = {"app.kubernetes.io/name": "dcgm-exporter"}
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    api.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}})
    api.kinds = api.kinds | {"/apis/metrics.k8s.io/v1beta1": "Pod"}
    labels = {"app.kubernetes.io/part-of": "paddle-aws", "app.kubernetes.io/instance": "words"}
    usage = {"cpu": "1500000000n", "memory": "2097152Ki"}
    api.objects[f"/apis/metrics.k8s.io/v1beta1/namespaces/paddle/pods/{pod}"] = {
        "kind": "Pod",
        "metadata": {"name": pod, "namespace": "paddle", "labels": labels},
        "containers": [{"name": "trainer", "usage": usage}],
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(EXPOSITION.replace("POD", pod).encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api.proxies[name] = f"http://127.0.0.1:{server.server_address[1]}"
        yield
        server.shutdown()


@pytest.mark.usefixtures("exporter")
def test_what_a_browser_shows_and_nobody_else_gets(api: JobController, address: str) -> None:
    jobs, page = (
        subprocess.run([*BROWSER, at], capture_output=True, text=True, check=True).stdout
        for at in (address, f"{address}job/words/")
    )
    (row,) = re.findall(r"<tr>(<td>.*?)</tr>", jobs)
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
    # Three nodes for the 200 seconds of all attempts.
    assert cells[:7] == ["words", "done", "3", "0.25", "70 %", "3.3 min", "$0.06"]
    assert 'href="job/words/"' in row

    assert 'data-shown="yes"' in page, page
    shown = {
        name: re.search(rf'id="{name}"[^>]*>([^<]*)<', page)[1]
        for name in ("job", "world", "goodput", "loss", "lost", "cost", "slow")
    }
    assert shown.pop("slow") == "slow: rank 1 on node-1, 2.0 times the median"
    assert shown == {
        "job": "words",
        "world": "3 pods · metrics come from 2 of 3 processes · 3 attempts",
        "cost": "$0.06",
        "goodput": "70 %",
        "loss": "0.02",
        "lost": "30 s",
    }
    # A program's text never becomes HTML, and VisualDL's own curve is beside the others.
    assert (
        "&lt;b&gt;a pod&lt;/b&gt; was lost" in page
        and "train/loss" in page
        and "&lt;b&gt;accuracy&lt;/b&gt; by step" in page
        and "dotted: lost, and trained again" in page
    )
    assert "nobody recorded its end" in page
    # Why an attempt ended stands on the page, not only below its mark.
    assert "attempt 1 ended: &lt;b&gt;a pod" in page

    pods = re.search(r'<table id="pods".*?</table>', page, re.S)[0]
    heads, first, *others = (
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)]
        for row in re.findall(r"<tr>.*?</tr>", pods)
    )
    assert heads == ["pod", "state", "node", "cores", "memory", "GPU", "GPU memory", "why", "log"]
    used = dict(
        zip(heads, next(row for row in (first, *others) if row[0] == "trainer 0"), strict=True)
    )
    assert (used["cores"], used["memory"]) == ("1.5", "2.0 GiB")
    assert (used["GPU"], used["GPU memory"]) == ("85 %", "2.0 GiB")
    settings = re.search(r'<details[^>]* id="settings".*?</details>', page, re.S)[0]
    assert ">image<" in settings and ">3<" in settings
    log = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port or 0)
    log.request("GET", f"{urlsplit(address).path}job/words/log?of=training&rank=0")
    assert b"[agent 0]" in log.getresponse().read()

    for path, host, code in yaml.safe_load(Path(__file__).with_name("board.yaml").read_text()):
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port or 0)
        secret = urlsplit(address).path.strip("/")
        connection.request("GET", f"/{path.format(secret=secret)}", headers={"Host": host})
        answer = connection.getresponse()
        assert answer.status == code, path
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


@pytest.mark.usefixtures("exporter")
def test_axe_finds_no_barrier(address: str) -> None:
    """Both pages, light and dark, on a screen and on a phone."""
    pages = [address, f"{address}job/words/"]
    node = Path(sys.executable).with_name("node")
    done = subprocess.run([node, AXE, *pages], capture_output=True, text=True)
    assert json.loads(done.stdout or "null") == [], done.stdout + done.stderr


def test_status_and_results_say_where_the_time_goes_and_who_is_slow(
    run: Run, api: JobController, job: JobFolder, folder: Path
) -> None:
    measured(job)
    goodput = json.loads(run("results", "--json").out)["goodput"]
    assert goodput == {
        "share": 0.7,
        "seconds": {"waiting": 10, "starting": 20, "training": 140, "lost": 30},
        "usd": None,
    }
    priced(folder)
    assert json.loads(run("results", "--json").out)["goodput"]["usd"]["training"] == round(
        0.36 * 2 * 140 / 3600, 2
    )
    assert "goodput 70%" in run("results").err

    api.scripts["trainer"] = Script(code=None, lines=())
    assert run("resume").code == 0
    slow = "trainer 2 on node-1 (1.8 times the median)"
    report = Goodput({"waiting": 3.0, "training": 109.0, "lost": 22.0}, (slow,))
    api.say(first_pod(api), f"[agent 0] {report.line()}")
    text = " ".join(run("status").out.split())
    assert f"goodput 81 % of 2 min: 3 waiting, 109 training, 22 lost (seconds) slow {slow}" in text
    assert json.loads(run("status", "--json").out)["goodput"]["slow"] == slow
