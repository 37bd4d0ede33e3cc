"""Discovery by the API server, over real HTTPS: exactly N, in numeric order, whatever the server does."""

import asyncio
import threading
import time

import pytest
from paddle_node import environment
from paddle_node.failure import Failure
from paddle_node.rendezvous.pod_list import PodList

pytestmark = pytest.mark.slow


def discovery(api, root, authority="ca.pem", **variables):
    api.lay_account(root, authority)
    job = {"JOB_NAME": "job", "TRAIN_CONFIG_DIR": "quick_start", "CONF_PADDLE_GRADIENT_NUM": "3", "POD_NAME": "pod-b"}
    pod = {"PADDLE_NODE_DISCOVERY": "pod-list", "PADDLE_NODE_ROOT": str(root), "POD_IP": "10.0.0.10"}
    return PodList(environment.parse({**job, **pod, **api.environment, **variables}), lambda text: None)


def put(api, **pods):
    for name, address in pods.items():
        api.put(f"pod-{name}", address)


def when_watched(api, act):
    """Does it as soon as the pod has its list and watches for changes."""

    def wait():
        while not api.watches:
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


def identified(found):
    try:
        return asyncio.run(found.identify())
    finally:
        found.rest()


def test_ids_follow_the_addresses_of_the_runs_own_running_pods_as_numbers(api, tmp_path):
    put(api, a="10.0.0.9", b="10.0.0.10", c="10.0.0.100")
    api.put("failed", "10.0.0.1", phase="Failed")
    api.put("leaving", "10.0.0.3", metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"})
    api.put("earlier", "10.0.0.4", uid="run-0")
    api.put("other", "10.0.0.5", job="other-job")
    found = discovery(api, tmp_path)
    node = identified(found)
    assert (node.trainer_id, node.run_id, asyncio.run(found.server_address())) == (1, "run-1", "10.0.0.9")


CONDITION = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}


@pytest.mark.parametrize(("token", "faults", "more", "code", "sentence"), [
    ("a-token", [403], {}, 77,
     'RoleBinding there to a Role with apiGroups: [""], resources: ["pods"], verbs: ["get", "list", "watch"]'),
    ("old", [], {}, 77, "401 Unauthorized"),
    ("a-token", [], {"KUBERNETES_SERVICE_HOST": ""}, 2, "automountServiceAccountToken: true"),
    ("a-token", [], {"authority": "other-ca.pem"}, 69, "its certificate is not signed by the mounted CA"),
    ("a-token", [], {"PADDLE_NODE_JOB_OBJECT": "jbo"}, 69, "this pod (pod-b) is not among the 0 pods of job-name=jbo"),
    ("a-token", [], {}, 69, "2 of 3 pods of job-name=job in namespace default run: pod-a, pod-b; "
     "waiting: pod-c (Unschedulable: 0/2 nodes are available) after "),
])  # fmt: skip
def test_what_is_missing_is_said(api, tmp_path, token, faults, more, code, sentence):
    put(api, a="10.0.0.9", b="10.0.0.10")
    api.put("pod-c", phase="Pending", status={"conditions": [CONDITION]})
    api.faults = faults
    with pytest.raises(Failure) as failure:
        found = discovery(api, tmp_path, **{"PADDLE_NODE_PEER_DEADLINE": "1.5", **more})
        (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/token").write_text(token)
        identified(found)
    assert failure.value.code == code and sentence in failure.value.sentence


@pytest.mark.parametrize("faults", [[500, 503], [429, 429], ["cut"], [410]])
def test_a_server_in_trouble_is_asked_again(api, tmp_path, faults):
    put(api, a="10.0.0.9", b="10.0.0.10", c="10.0.0.100")
    api.faults = list(faults)
    assert identified(discovery(api, tmp_path)).trainer_id == 1
    assert api.requests["list"] == len(faults) + 1


@pytest.mark.parametrize(
    ("faults", "requests"), [([], {"list": 1, "watch": 2}), ([None, None, "expired"], {"list": 2, "watch": 3})]
)
def test_a_cut_watch_continues_where_it_was_and_one_that_fell_behind_lists_again(api, tmp_path, faults, requests):
    put(api, a="10.0.0.9", b="10.0.0.10")
    api.faults = faults

    def cut_and_change():
        api.cut_watches()
        while faults:
            time.sleep(0.01)
        put(api, c="10.0.0.8")

    when_watched(api, cut_and_change)
    assert identified(discovery(api, tmp_path)).trainer_id == 2
    assert api.requests["list"] == requests["list"] and api.requests["watch"] <= requests["watch"]


def test_a_replaced_pod_moves_the_ids_and_resting_asks_nothing(api, tmp_path):
    put(api, a="10.0.0.9", b="10.0.0.10", c="10.0.0.100")
    found = discovery(api, tmp_path)

    async def live():
        await found.identify()
        assert not found.moved()
        while not api.watches:
            await asyncio.sleep(0.01)
        found.rest()
        asked = dict(api.requests)
        api.put("pod-a", "10.0.0.9", phase="Failed")
        assert not found.moved() and api.requests == asked
        put(api, e="10.0.0.200")
        while not found.moved():
            await asyncio.sleep(0.05)
        return await found.identify()

    assert asyncio.run(live()).trainer_id == 0
    found.rest()
