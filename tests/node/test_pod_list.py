"""Discovery through the API server over real HTTPS: exactly N pods in numeric order, whatever the
server does.
"""

import asyncio
import threading
import time
from pathlib import Path

import pytest
import yaml
from kubernetes_api import Fault
from paddle_node import environment
from paddle_node.failure import Failure
from paddle_node.tutorials.pod_list import PodList

pytestmark = pytest.mark.slow
THREE = {"pod-a": "10.0.0.9", "pod-b": "10.0.0.10", "pod-c": "10.0.0.100"}


@pytest.fixture
def discovery(api, tmp_path):
    """Yields a function that makes the discovery of the second of three running pods, and stops its
    requests after the test.
    """
    made = []

    def make(pods=THREE, authority="ca.pem", token=None, **variables) -> PodList:
        for name, address in pods.items():
            api.put_pod(name, address)
        api.lay_account(tmp_path, authority)
        if token:
            (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/token").write_text(token)
        job = {
            "JOB_NAME": "job",
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_GRADIENT_NUM": "3",
            "POD_NAME": "pod-b",
        }
        pod = {
            "PADDLE_NODE_DISCOVERY": "pod-list",
            "PADDLE_NODE_ROOT": str(tmp_path),
            "POD_IP": "10.0.0.10",
        }
        made.append(
            PodList(
                environment.parse({**job, **pod, **api.environment, **variables}), lambda text: None
            )
        )
        return made[-1]

    yield make
    for found in made:
        found.stop_requests()


def identified(found):
    return asyncio.run(found.identify())


def until(condition):
    while not condition():
        time.sleep(0.01)


def test_ids_follow_the_addresses_of_the_runs_own_running_pods_as_numbers(api, discovery):
    api.put_pod("failed", "10.0.0.1", phase="Failed")
    api.put_pod("leaving", "10.0.0.3", metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"})
    api.put_pod("earlier", "10.0.0.4", uid="run-0")
    api.put_pod("other", "10.0.0.5", job="other-job")
    found = discovery()
    node = identified(found)
    assert (node.trainer_id, node.run_id, asyncio.run(found.server_address())) == (
        1,
        "run-1",
        "10.0.0.9",
    )


@pytest.mark.parametrize(
    "case", yaml.safe_load(Path(__file__).with_name("pod_list.yaml").read_text())
)
def test_what_is_missing_is_said(api, discovery, case):
    api.put_pod("pod-c", phase="Pending")
    api.faults = [Fault("", status=case.get("status", 0))]
    with pytest.raises(Failure) as failure:
        identified(
            discovery(
                {"pod-a": "10.0.0.9", "pod-b": "10.0.0.10"},
                PADDLE_NODE_PEER_DEADLINE="1.5",
                **case.get("set", {}),
            )
        )
    assert failure.value.code == case["code"] and case["said"] in failure.value.sentence


@pytest.mark.parametrize(
    "faults",
    [[{"status": 500}, {"status": 503}], [{"status": 429}] * 2, [{"cut": 0}], [{"status": 410}]],
)
def test_a_server_in_trouble_is_asked_again(api, discovery, faults):
    api.faults = [Fault("", **fault) for fault in faults]
    assert identified(discovery()).trainer_id == 1
    assert api.asked(watch=False) == len(faults) + 1


@pytest.mark.parametrize("lists", [1, 2])
def test_a_cut_watch_continues_where_it_was_and_one_that_fell_behind_lists_again(
    api, discovery, lists
):
    again = threading.Event()
    api.faults = [
        Fault("watch=true", skip=1, then=lambda: (lists == 2 and api.forget(), again.set()))
    ]

    def cut_and_change():
        until(lambda: api.watches)
        api.cut_watches()
        again.wait()
        api.put_pod("pod-c", "10.0.0.8")

    threading.Thread(target=cut_and_change, daemon=True).start()
    assert identified(discovery({"pod-a": "10.0.0.9", "pod-b": "10.0.0.10"})).trainer_id == 2
    assert api.asked(watch=False) == lists and api.asked(watch=True) <= lists + 1
