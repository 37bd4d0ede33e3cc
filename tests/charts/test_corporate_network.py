"""A cluster's proxy and certificates reach data and environment Jobs, and no trainer."""

import http.server
import os
import ssl
import subprocess
import sys
import threading
from pathlib import Path

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

HERE = Path(__file__).parent
PEM = (HERE.parent / "aws" / "certificate.pem").read_text()
JOB = {
    "name": "words",
    "trainers": 2,
    "data": {"source": "https://data.example/words.tsv"},
    "program": {"folder": "quick_start", "requirements": ["six"]},
}


def test_jobs_that_reach_the_internet_get_proxy_and_certificates() -> None:
    proxy = {"http_proxy": "http://proxy:3128", "https_proxy": "http://proxy:3129"}
    outputs = ClusterOutputs.placeholder().model_copy(
        update={**proxy, "no_proxy": "localhost,.svc", "certificates": PEM}
    )
    found = documents(TrainingJob.parse(JOB, HERE / "jobs"), outputs, "demo:1")
    jobs = {
        document["metadata"]["name"]: document for document in found if document["kind"] == "Job"
    }
    reached = set()
    for name, job in jobs.items():
        pod = job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        env = {each["name"]: each.get("value") for each in container["env"]}
        mounts = [m for m in container["volumeMounts"] if m["name"] == "certificates"]
        if "HTTPS_PROXY" not in env:
            assert not mounts and "https_proxy" not in env, name
            continue
        reached.add(name.split("-")[1])
        assert env["HTTPS_PROXY"] == env["https_proxy"] == "http://proxy:3129"
        assert env["HTTP_PROXY"] == "http://proxy:3128" and env["no_proxy"] == "localhost,.svc"
        assert [mount["mountPath"] for mount in mounts] == ["/opt/paddle/certificates"]
        (volume,) = (v for v in pod["volumes"] if v["name"] == "certificates")
        (bundle,) = (
            document["data"]
            for document in found
            if document["metadata"]["name"] == volume["configMap"]["name"]
        )
        assert bundle == {"cluster.pem": PEM}
    assert reached == {"data", "environment"}
    policies = {
        document["metadata"]["name"]: {
            port["port"]
            for rule in document["spec"].get("egress", ())
            for port in rule.get("ports", ())
        }
        for document in found
        if document["kind"] == "NetworkPolicy"
    }
    assert {3128, 3129} <= policies["words-data"] and {3128, 3129} <= policies["words-environment"]
    assert not {3128, 3129} & policies["words-trainer"]


def test_a_job_trusts_what_the_clusters_certificates_sign(tmp_path: Path) -> None:
    files = HERE.parent / "node" / "certificates"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = (
        "import urllib.request, paddle_node.trust as t; t.trust_certificates(); "
        f"print(urllib.request.urlopen('https://127.0.0.1:{server.server_port}').status)"
    )
    place = tmp_path / "opt/paddle/certificates"
    place.mkdir(parents=True)

    def ask(bundle: str) -> str:
        (place / "cluster.pem").write_text((files / bundle).read_text())
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PADDLE_NODE_ROOT": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": os.defpath},
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    try:
        assert ask("ca.pem") == "200"
        assert "CERTIFICATE_VERIFY_FAILED" in ask("other-ca.pem")
        public = (tmp_path / "certificates.pem").read_text().count("BEGIN CERTIFICATE")
        assert public > 50, "the public ones are there as well"
    finally:
        server.shutdown()
