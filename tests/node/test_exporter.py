"""The pod's numbers in OpenMetrics: right, in a form that Prometheus reads, and no way to disturb
training for whoever reaches the port.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from paddle_node.agent import exporter
from paddle_node.training.step_log import StepLog

SAMPLE = re.compile(r"(?P<name>[a-z_]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")
PORT = "7161"
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "monitoring.md").read_text()
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text())


def scrape(address: tuple[str, int], path: str = "/metrics", accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(
        f"http://{address[0]}:{address[1]}{path}", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str) -> dict[tuple[str, str], float]:
    """Returns the values by name and labels, without the job's."""
    assert text.endswith("# EOF\n")
    matches = [SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    return {
        (match["name"], match["labels"].partition(",")[2]): float(match["value"])
        for match in matches
    }


def write(folder: Path, rank: int, *lines: object) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (folder / f"steps-{rank}.jsonl").write_text(text)


def line(attempt: int, step: int, at: float, loss: object = 0.5, **more: Any) -> dict[str, Any]:
    return {"attempt": attempt, "step": step, "time": at, "metrics": {"loss": loss}, **more}


def test_a_step_log_says_loss_step_and_speed_of_the_attempt_that_runs(tmp_path: Path) -> None:
    write(
        tmp_path,
        3,
        line(1, 90, 50.0),
        line(2, 100, 100.0, records=1000, **{"pass": 1}),
        "torn {",
        line(2, 120, 110.0, loss=0.25, records=1640, **{"pass": 1}),
    )
    rank = {"rank": "3"}
    assert exporter.read_progress(tmp_path, 2) == [
        ("paddle_step", 120, rank),
        ("paddle_step_metric", 0.25, {**rank, "name": "loss"}),
        ("paddle_pass", 1, rank),
        ("paddle_steps_per_second", 2.0, rank),
        ("paddle_records_per_second", 64.0, rank),
    ]
    assert exporter.read_progress(tmp_path, 3) == []


def test_whatever_lies_on_the_volume_is_a_valid_exposition(tmp_path: Path) -> None:
    write(tmp_path, 0, line(1, 1, 1.0, loss=float("inf")), line(1, 10**400, 1.0), "[" * 100_000)
    hostile = {
        'a"b\\c\nd': 1,
        "\ud800": 2.5,
        "nan": None,
        "yes": True,
        "big": 10**400,
        "x" * 999: 3,
    }
    write(tmp_path, 1, {**line(1, 5, 1.0), "metrics": hostile}, "null", '{"attempt": 1}')
    (tmp_path / "steps-2.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "steps-4.jsonl")
    (tmp_path / "steps-5.jsonl").mkdir()
    with contextlib.suppress(OSError):
        exporter.read_progress(tmp_path, 1)
    for broken in (2, 5):
        path = tmp_path / f"steps-{broken}.jsonl"
        path.unlink() if path.is_symlink() else path.rmdir()
    progress = exporter.read_progress(tmp_path, 1)
    pod = exporter.PodFacts("job", tmp_path, 1, True, {"training": 3.0, "lost": 1.0}, {7: 2.5})
    text = exporter.exposition(exporter.samples(pod, progress), training_job="job")
    text = text.encode(errors="replace").decode()
    values = samples(text.replace(r"\"", "'"))
    assert values["paddle_step", 'rank="1"'] == 5
    assert values["paddle_slow_trainer_ratio", 'rank="7"'] == 2.5
    assert values["paddle_goodput_ratio", ""] == 0.75
    assert ("paddle_step_metric", 'rank="1",name="yes"') not in values
    if promtool := shutil.which("promtool"):
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True
        )
        assert "error while linting" not in checked.stderr, checked.stderr


def test_the_dashboard_and_the_page_name_what_is_served() -> None:
    served = exporter.FAMILIES.keys()
    name = re.compile(r"\bpaddle_(?!node\b)[a-z_]+")
    assert set(name.findall(PAGE)) == served
    assert set(name.findall(json.dumps(DASHBOARD))) <= served


@pytest.mark.slow
def test_a_job_is_scraped_while_strangers_do_their_worst(job: Any, tmp_path: Path) -> None:
    pods = job(count=2, stand_in={"holds": [1, 1, 1]}, METRICS_PORT=PORT)
    pods.start_and_hold()
    addresses = [(pods.address(index), int(PORT)) for index in range(2)]
    first = addresses[0]
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            burst = []
            for _ in range(300):
                burst.append(socket.socket())
                burst[-1].setblocking(False)
                burst[-1].connect_ex(first)
            for each in burst[::2]:
                with contextlib.suppress(OSError):
                    each.send(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
            over.wait(0.5)
            for each in burst:
                each.close()

    kind, text = scrape(first, accept=exporter.OPEN_METRICS)
    assert kind == exporter.OPEN_METRICS
    values = samples(text)
    assert values["paddle_attempt", ""] == values["paddle_attempt_running", ""] == 1
    assert 'training_job="job"' in text
    assert scrape(addresses[1])[0] == exporter.TEXT
    assert {name for name, _ in samples(scrape(first)[1])} >= {"paddle_run_seconds"}
    for path in ("/", "/metrics/../x"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scrape(addresses[1], path)
    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        time.sleep(3)
        pods.release()
        pods.end_undisturbed()
    finally:
        over.set()
        flooding.join()
    assert len(pods.attempts()) == 1


@pytest.mark.slow
def test_a_taken_port_costs_the_numbers_and_not_the_training(job: Any) -> None:
    pods = job(count=1, METRICS_PORT=PORT)
    with socket.create_server((pods.address(0), int(PORT))):
        pods.start()
        pods.end_undisturbed()
    assert f"no metrics are served at port {PORT}: " in pods.log(0)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed here")
def test_a_prometheus_reads_the_job(job: Any, tmp_path: Path) -> None:
    pods = job(count=2, stand_in={"holds": [1, 1, 2]}, METRICS_PORT=PORT)
    pods.start_and_hold()
    for rank in range(2):
        # As the trainers' own loop does, which a stand-in has not.
        StepLog(pods.folder.steps(rank, rank), 1).add({"loss": 0.5}, 40, now=True)
    page = tmp_path / "page.yml"
    [written] = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE, re.S)
    # Debian builds Prometheus without Kubernetes' discovery.
    page.write_text(written.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: []"))
    subprocess.run(["promtool", "check", "config", "--syntax-only", str(page)], check=True)
    targets = [f"{pods.address(index)}:{PORT}" for index in range(2)]
    settings = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "paddle", "static_configs": [{"targets": targets}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=(tmp_path / "prometheus.log").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 60

        def ask(query: str) -> list[dict[str, Any]]:
            with contextlib.suppress(urllib.error.URLError):
                where = f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"
                with urllib.request.urlopen(where, timeout=5) as answer:
                    return json.load(answer)["data"]["result"]
            return []

        def wait_for(query: str, count: int) -> list[dict[str, Any]]:
            while len(results := ask(query)) < count:
                assert time.monotonic() < deadline, (tmp_path / "prometheus.log").read_text()
                time.sleep(0.2)
            return results

        wait_for("up==1", 2)
        steps = wait_for("paddle_step", 2)
        assert {each["metric"]["rank"] for each in steps} == {"0", "1"}
        assert all(each["metric"]["training_job"] == "job" for each in steps)
        [loss] = wait_for('avg(paddle_step_metric{name="loss"})', 1)
        assert loss["value"][1] == "0.5"
        [attempt] = wait_for("max(paddle_attempt)", 1)
        assert attempt["value"][1] == "1"
        for panel in DASHBOARD["panels"]:
            for target in panel["targets"]:
                ask(target["expr"].replace("$job", ".+"))
    finally:
        server.terminate()
        server.wait()
    pods.release()
    pods.end_undisturbed()
