"""A recorder for k3s on a machine under test: it writes the files that its callers read, and
records how it was started.

Limits: no Kubernetes runs. `server` writes what the real one leaves on disk (a CA, its token with
the CA's hash, a kubeconfig, a database) and exits at once, as if it kept running; "ready" means
that it was started on this boot. Its kubectl answers the few questions that the scripts ask.
`Machine.k3s_settings` checks config keys against k3s's own list.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

ACCOUNT = Path("/account")
STATE = Path("/var/lib/rancher/k3s/server")
AGENT = Path("/var/lib/rancher/k3s/agent")
RUNNING = Path("/run/k3s-runs")
KUBECONFIG = Path(__file__).with_name("kubeconfig.yaml").read_text()


def token_of(config: str, key: str) -> str:
    path = Path(re.search(rf"^{key}: (.*)$", config, re.MULTILINE).group(1))
    assert path.stat().st_mode & 0o777 == 0o600, f"{path} can be read by others"
    text = path.read_text()
    assert text and "\n" not in text
    return text


def server(arguments: list[str]) -> None:
    config = Path("/etc/rancher/k3s/config.yaml").read_text()
    token, node_token = token_of(config, "token-file"), token_of(config, "agent-token-file")
    database, flag = STATE / "db/etcd", STATE / "db/reset-flag"
    if "--cluster-reset" in arguments:
        if flag.exists():
            sys.exit("a reset was made before: start without --cluster-reset")
        snapshot = next(
            argument
            for argument in arguments
            if argument.startswith("--cluster-reset-restore-path=")
        ).split("=")[1]
        if "broken" in snapshot:
            sys.exit(f"snapshot {snapshot} has no valid checksum")
        # The real k3s writes its member's name there first.
        database.mkdir(exist_ok=True)
        database.rename(STATE / f"db/etcd-old-{len(list(database.parent.iterdir()))}")
        if "torn" in snapshot:
            sys.exit(f"snapshot {snapshot} ended too soon")
        (database / "member/wal").mkdir(parents=True)
        (database / "content").write_text(f"restored from {snapshot}")
        flag.touch()
        return
    flag.unlink(missing_ok=True)
    if (STATE / "token").exists() and not (STATE / "token").read_text().endswith(
        f"::server:{token}\n"
    ):
        sys.exit("bootstrap data already found and encrypted with different token")
    if json.loads((ACCOUNT / "state.json").read_text()).get("k3s_never_ready"):
        return
    (database / "member/wal").mkdir(parents=True, exist_ok=True)
    if not (database / "content").exists():
        (database / "content").write_text(f"made by {token[:0]}the first boot")
    ca = STATE / "tls/server-ca.crt"
    if not ca.exists():
        ca.parent.mkdir()
        ca.write_text("a certificate " + os.urandom(8).hex())
    digest = hashlib.sha256(ca.read_bytes()).hexdigest()
    (STATE / "token").write_text(f"K10{digest}::server:{token}\n")
    (STATE / "node-token").write_text(f"K10{digest}::node:{node_token}\n")
    Path("/etc/rancher/node/password").write_text("what the cluster knows this node by")
    kubeconfig = Path("/etc/rancher/k3s/k3s.yaml")
    kubeconfig.write_text(KUBECONFIG)
    kubeconfig.chmod(0o600)
    RUNNING.touch()


def agent() -> None:
    config = Path("/etc/rancher/k3s/config.yaml").read_text()
    token = token_of(config, "token-file")
    assert re.fullmatch(r"K10[0-9a-f]{64}::node:[A-Za-z0-9]{32,}", token), "not a node's full token"
    Path("/account/joined").write_text(token)
    AGENT.mkdir(parents=True, exist_ok=True)
    (AGENT / "kubelet.kubeconfig").write_text(KUBECONFIG)
    RUNNING.touch()


def kubectl(arguments: list[str]) -> None:
    if not RUNNING.exists():
        sys.exit("The connection to the server was refused")
    words = [
        argument
        for argument in arguments
        if argument not in ("-n", "kube-system", "-o") and "--request-timeout" not in argument
    ]
    match words:
        case ["get", "--raw", "/readyz"]:
            print("ok", end="")
        case ["get", "secret", name, _]:
            print(f"token-of-{name}", end="")
        case ["get", "nodes", _]:
            print((ACCOUNT / "nodes").read_text(), end="")
        case ["delete", "node", name]:
            with (ACCOUNT / "deleted").open("a") as deleted:
                deleted.write(f"{name}\n")
        case [*_, "get", "node", _, _]:
            print("True", end="")
        case _:
            sys.exit(f"the recorder does not know {words}")


with (ACCOUNT / "calls").open("a") as calls:
    calls.write(json.dumps({"argv": sys.argv, "environ": dict(os.environ)}) + "\n")
match sys.argv[1]:
    case "server":
        server(sys.argv[2:])
    case "agent":
        agent()
    case "kubectl":
        kubectl(sys.argv[2:])
