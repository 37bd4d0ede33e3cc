"""Discovery by the API server, over real HTTPS: exactly N, in numeric order, whatever the server does."""

import asyncio
import threading
import time

import pytest
from paddle_node import environment
from paddle_node.failure import Failure
from paddle_node.rendezvous.pod_list import PodList

pytestmark = pytest.mark.slow
THREE = {"pod-a": "10.0.0.9", "pod-b": "10.0.0.10", "pod-c": "10.0.0.100"}


@pytest.fixture
def discovery(api, tmp_path):
    """Makes the discovery of the second of three pods, once these run; it rests in the end."""
    made = []

    def make(pods=THREE, authority="ca.pem", token=None, **variables) -> PodList:
        for name, address in pods.items():
            api.put(name, address)
        api.lay_account(tmp_path, authority)
        if token:
            (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/token").write_text(token)
        job = {"JOB_NAME": "job", "TRAIN_CONFIG_DIR": "quick_start", "CONF_PADDLE_GRADIENT_NUM": "3", "POD_NAME": "pod-b"}
        pod = {"PADDLE_NODE_DISCOVERY": "pod-list", "PADDLE_NODE_ROOT": str(tmp_path), "POD_IP": "10.0.0.10"}
        made.append(PodList(environment.parse({**job, **pod, **api.environment, **variables}), lambda text: None))
        return made[-1]

    yield make
    for found in made:
        found.rest()


def identified(found):
    return asyncio.run(found.identify())


def until(condition):
    while not condition():
        time.sleep(0.01)


def test_ids_follow_the_addresses_of_the_runs_own_running_pods_as_numbers(api, discovery):
    api.put("failed", "10.0.0.1", phase="Failed")
    api.put("leaving", "10.0.0.3", metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"})
    api.put("earlier", "10.0.0.4", uid="run-0")
    api.put("other", "10.0.0.5", job="other-job")
    found = discovery()
    node = identified(found)
    assert (node.trainer_id, node.run_id, asyncio.run(found.server_address())) == (1, "run-1", "10.0.0.9")


@pytest.mark.parametrize(("fault", "settings", "code", "sentence"), [
    (403, {}, 77, 'RoleBinding there to a Role with apiGroups: [""], resources: ["pods"], verbs: ["get", "list", "watch"]'),
    (None, {"token": "old"}, 77, "401 Unauthorized"),
    (None, {"KUBERNETES_SERVICE_HOST": ""}, 2, "automountServiceAccountToken: true"),
    (None, {"authority": "other-ca.pem"}, 69, "its certificate is not signed by the mounted CA"),
    (None, {"PADDLE_NODE_JOB_OBJECT": "jbo"}, 69, "this pod (pod-b) is not among the 0 pods of job-name=jbo"),
    (None, {}, 69, "2 of 3 pods of job-name=job in namespace default run: pod-a, pod-b; "
     "waiting: pod-c (Unschedulable: 0/2 nodes are available) after "),
])  # fmt: skip
def test_what_is_missing_is_said(api, discovery, fault, settings, code, sentence):
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    api.put("pod-c", phase="Pending", status={"conditions": [unscheduled]})
    api.faults = [fault]
    with pytest.raises(Failure) as failure:
        identified(discovery({"pod-a": "10.0.0.9", "pod-b": "10.0.0.10"}, PADDLE_NODE_PEER_DEADLINE="1.5", **settings))
    assert failure.value.code == code and sentence in failure.value.sentence


@pytest.mark.parametrize("faults", [[500, 503], [429, 429], ["cut"], [410]])
def test_a_server_in_trouble_is_asked_again(api, discovery, faults):
    api.faults = list(faults)
    assert identified(discovery()).trainer_id == 1
    assert api.requests["list"] == len(faults) + 1


@pytest.mark.parametrize(("faults", "lists"), [([], 1), ([None, None, "expired"], 2)])
def test_a_cut_watch_continues_where_it_was_and_one_that_fell_behind_lists_again(api, discovery, faults, lists):
    api.faults = faults

    def cut_and_change():
        until(lambda: api.watches)
        api.cut_watches()
        until(lambda: not faults)
        api.put("pod-c", "10.0.0.8")

    threading.Thread(target=cut_and_change, daemon=True).start()
    assert identified(discovery({"pod-a": "10.0.0.9", "pod-b": "10.0.0.10"})).trainer_id == 2
    assert api.requests["list"] == lists and api.requests["watch"] <= lists + 1
