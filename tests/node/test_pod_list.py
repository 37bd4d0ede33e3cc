"""Discovery by the API server, over real HTTPS: exactly N, in numeric order, whatever the server does."""

import asyncio
import threading
import time

import pytest
from paddle_node import environment
from paddle_node.failure import Failure
from paddle_node.rendezvous.pod_list import PodList

pytestmark = pytest.mark.slow


def discovery(api, root, name="pod-b", address="10.0.0.10", authority="ca.pem", deadline="30", **variables):
    api.lay_account(root, authority)
    node = environment.parse(
        {
            "JOB_NAME": "job",
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_GRADIENT_NUM": "3",
            "PADDLE_NODE_DISCOVERY": "pod-list",
            "PADDLE_NODE_PEER_DEADLINE": deadline,
            "PADDLE_NODE_ROOT": str(root),
            "POD_NAME": name,
            "POD_IP": address,
            **api.environment,
            **variables,
        }
    )
    return PodList(node, lambda text: None)


def three(api, **more):
    api.put("pod-a", "10.0.0.9", **more)
    api.put("pod-b", "10.0.0.10", **more)
    api.put("pod-c", "10.0.0.100", **more)


def when_watched(api, act):
    """Does it as soon as the pod has its list and watches for changes."""

    def wait():
        while not api._watches:
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


def identified(found):
    async def ask():
        node = await found.identify()
        return node, await found.coordinator()

    try:
        return asyncio.run(ask())
    finally:
        found.rest()


def test_ids_follow_the_addresses_as_numbers(api, tmp_path):
    three(api)
    node, coordinator = identified(discovery(api, tmp_path))
    assert (node.trainer_id, coordinator) == (1, "10.0.0.9")
    assert node.run_id == "run-1"


def test_pods_that_ended_or_will_end_or_are_another_runs_do_not_count(api, tmp_path):
    three(api)
    api.put("failed", "10.0.0.1", phase="Failed")
    api.put("succeeded", "10.0.0.2", phase="Succeeded")
    api.put("leaving", "10.0.0.3", metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"})
    api.put("earlier", "10.0.0.4", uid="run-0")
    api.put("other", "10.0.0.5", job="other-job")
    assert identified(discovery(api, tmp_path))[0].trainer_id == 1


def test_the_missing_pod_is_named_with_kubernetes_own_reason(api, tmp_path):
    api.put("pod-a", "10.0.0.9")
    api.put("pod-b", "10.0.0.10")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    api.put("pod-c", "", phase="Pending", status={"conditions": [condition]})
    with pytest.raises(Failure) as failure:
        identified(discovery(api, tmp_path, deadline="1.5"))
    assert failure.value.code == 69
    assert failure.value.sentence.startswith(
        "2 of 3 pods of job-name=job in namespace default run: pod-a, pod-b; "
        "waiting: pod-c (Unschedulable: 0/2 nodes are available) after "
    )


def test_403_says_which_role_is_missing(api, tmp_path):
    api.forbidden = True
    with pytest.raises(Failure) as failure:
        identified(discovery(api, tmp_path))
    assert failure.value.code == 77
    assert 'RoleBinding there to a Role with apiGroups: [""], resources: ["pods"], verbs: ["get", "list", "watch"]' in str(
        failure.value
    )


def test_no_account_at_all(api, tmp_path):
    with pytest.raises(Failure, match="automountServiceAccountToken: true") as failure:
        discovery(api, tmp_path, KUBERNETES_SERVICE_HOST="")
    assert failure.value.code == 2


def test_a_certificate_of_another_authority_is_not_trusted(api, tmp_path):
    three(api)
    with pytest.raises(Failure, match="its certificate is not signed by the mounted CA"):
        identified(discovery(api, tmp_path, authority="other-ca.pem", deadline="1.5"))
    assert not api.requests


@pytest.mark.parametrize("faults", [[500, 503], [429, 429], ["cut"], [410]])
def test_a_server_in_trouble_is_asked_again(api, tmp_path, faults):
    three(api)
    api.faults = list(faults)
    assert identified(discovery(api, tmp_path))[0].trainer_id == 1
    assert api.requests["list"] == len(faults) + 1


def test_a_cut_watch_goes_on_where_it_was(api, tmp_path):
    api.put("pod-a", "10.0.0.9")
    api.put("pod-b", "10.0.0.10")

    def cut_and_change():
        api.cut_watches()
        api.put("pod-c", "10.0.0.8")

    when_watched(api, cut_and_change)
    assert identified(discovery(api, tmp_path))[0].trainer_id == 2
    assert api.requests == {"list": 1, "watch": 2}


def test_a_watch_that_fell_behind_lists_again(api, tmp_path):
    api.put("pod-a", "10.0.0.9")
    api.put("pod-b", "10.0.0.10")

    def fall_behind():
        api.put("pod-x", "10.0.0.7", phase="Failed")
        api.put("pod-c", "10.0.0.8")
        api.forget_events()
        return "cut"

    # When the cut watch is asked for again, the server has forgotten what came after its version: 410.
    api.faults = [None, fall_behind]
    assert identified(discovery(api, tmp_path))[0].trainer_id == 2
    assert api.requests["list"] == 2


def test_a_replaced_pod_moves_the_ids_and_resting_asks_nothing(api, tmp_path):
    three(api)
    found = discovery(api, tmp_path)

    async def live():
        await found.identify()
        assert not found.moved()
        async with asyncio.timeout(60):
            while not api._watches:
                await asyncio.sleep(0.01)
        found.rest()
        asked = dict(api.requests)
        api.put("pod-a", "10.0.0.9", phase="Failed")
        await asyncio.sleep(0.3)
        assert api.requests == asked
        assert not found.moved()
        api.put("pod-e", "10.0.0.200")
        async with asyncio.timeout(60):
            while not found.moved():
                await asyncio.sleep(0.05)
        return await found.identify()

    assert asyncio.run(live()).trainer_id == 0
    found.rest()
