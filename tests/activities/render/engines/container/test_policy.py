"""What a class grants to engine pods on its nodes, and who can ask for it: the platform alone."""

from typing import Any

import pytest

from activities.render.replica import InvalidSpec
from tests.activities.render.builders import a_cluster, a_gang, a_member, an_engine, container, env, pod, render
from tests.activities.render.topologies import POLICY

RDMA = {"rdma/hca_shared_devices_a": "1", "rdma/hca_shared_devices_b": "2"}
PAGES = {"hugepages-2Mi": "4Gi", "hugepages-1Gi": "2Gi"}


def granted(policy: dict[str, Any], *engines: dict[str, Any], pool: str = "h100", **settings: Any) -> Any:
    return render(*engines, cluster=a_cluster(pod_policies={pool: policy}), settings=settings)


@pytest.mark.parametrize("policies", [{}, {"h100": {}}, {"other": POLICY}], ids=["none", "an empty one", "of another pool"])
def test_wkl_16_a_pool_without_a_policy_has_the_pods_that_it_had(policies: dict[str, Any]) -> None:
    assert pod(render(cluster=a_cluster(pod_policies=policies))) == pod(render())


def test_each_member_has_the_policy_of_its_own_pool() -> None:
    rendered = granted(POLICY, a_gang(leader={"pool": "head"}))
    assert pod(rendered)["spec"] == pod(render(a_gang(leader={"pool": "head"})))["spec"]
    worker = pod(rendered, role="Worker")["spec"]
    assert (worker["serviceAccountName"], worker["automountServiceAccountToken"]) == ("engines", False)


def test_requests_and_limits_are_those_of_the_class_amount_by_amount() -> None:
    resources = container(granted(POLICY))["resources"]
    assert resources["requests"] == {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "20Gi", **PAGES, **RDMA}
    assert resources["limits"] == {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "100Gi", **PAGES, **RDMA}
    assert resources["claims"] == [{"name": "devices"}]
    own = container(granted({"resources": {"requests": {"cpu": "16"}}}, engine_requests={"cpu": "1", "memory": "1Gi"}))["resources"]
    assert (own["requests"], "limits" in own) == ({"cpu": "16", "memory": "1Gi"}, False)


def test_devices_that_an_engine_claims_are_counted_as_it_claims_them() -> None:
    claim = {"name": "card", "resourceName": "rdma/hca_shared_devices_a", "count": 4}
    resources = container(granted({"rdma": POLICY["rdma"]}, an_engine("main", a_member(requests=[claim]))))["resources"]
    assert resources["limits"] == {"rdma/hca_shared_devices_a": "4", "rdma/hca_shared_devices_b": "2"}


def test_huge_pages_are_mounted_by_size() -> None:
    rendered = granted(POLICY)
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod(rendered)["spec"]["volumes"]}
    assert volumes == {
        "dshm": {"medium": "Memory", "sizeLimit": "64Gi"},
        "hugepages-2mi": {"medium": "HugePages-2Mi"},
        "hugepages-1gi": {"medium": "HugePages-1Gi"},
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container(rendered)["volumeMounts"]}
    assert mounts == {"dshm": "/dev/shm", "hugepages-2mi": "/dev/hugepages-2Mi", "hugepages-1gi": "/dev/hugepages-1Gi"}  # noqa: S108


def test_the_size_of_shared_memory_is_that_of_the_setting_where_the_class_has_none() -> None:
    volumes = pod(granted({"seccomp": {}}, shm_size_limit="8Gi"))["spec"]["volumes"]
    assert volumes == [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]


def test_wkl_55_variables_stand_in_front_and_the_owners_own_wins() -> None:
    own = {"name": "UCX_TLS", "value": "tcp"}
    rendered = granted(POLICY, a_gang(leader={"env": [own]}))
    assert env(rendered) == {
        "MODELPLANE_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
        "MODELPLANE_RANK": "$(LWS_WORKER_INDEX)",
        "NCCL_IB_HCA": "mlx5",
        "UCX_TLS": "tcp",
    }
    assert env(rendered, role="Worker")["UCX_TLS"] == "rc,cuda"


def test_taints_are_tolerated_beside_those_of_the_devices() -> None:
    policy = {"tolerations": [*POLICY["tolerations"], {"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}  # type: ignore[misc]
    assert pod(granted(policy))["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "acme.example/rdma", "operator": "Exists"},
        {"key": "acme.example/owner", "operator": "Equal", "value": "ml", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    ("profile", "rendered"),
    [
        (None, {"type": "RuntimeDefault"}),
        ({"type": "Unconfined"}, {"type": "Unconfined"}),
        (POLICY["seccomp"], {"type": "Localhost", "localhostProfile": "profiles/engine.json"}),
    ],
    ids=["none", "unconfined", "of the node"],
)
def test_the_seccomp_profile_is_that_of_the_class(profile: Any, rendered: dict[str, str]) -> None:
    policy = {"runtimeClassName": "nvidia", **({"seccomp": profile} if profile else {})}
    spec = pod(granted(policy))["spec"]
    assert (spec["securityContext"], spec["runtimeClassName"]) == ({"seccompProfile": rendered}, "nvidia")


def test_capabilities_are_those_of_the_engine_and_of_no_other_container() -> None:
    policy = {"capabilities": ["IPC_LOCK", "SYS_NICE"]}
    pair = [an_engine(name, a_member(args=["--port=8001"]), phase=phase) for name, phase in (("alpha", "Decode"), ("beta", "Prefill"))]
    rendered = render(*pair, mode="PrefillDecode", cluster=a_cluster(pod_policies={"h100": policy}))
    assert container(rendered, "alpha")["securityContext"] == {"capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}}
    assert pod(rendered, "alpha")["spec"]["initContainers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "securityContext" not in container(granted({"env": []}))


def test_a_capability_that_is_not_on_the_list_is_not_granted() -> None:
    """Admission refuses it; a class that was stored without that check stops what needs it, in words."""
    with pytest.raises(InvalidSpec, match=r"pool h100: podPolicy of its InferenceClass cannot be read: capabilities\.0: .*; apply the"):
        granted({"capabilities": ["SYS_ADMIN"]})


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({"limits": {"memory": "100Mi"}}, {"cpu": "100m", "memory": "100Mi"}),
        ({"limits": {"cpu": "0.05", "memory": "1Gi"}}, {"cpu": "0.05", "memory": "256Mi"}),
        ({"limits": {"memory": "268435456"}}, {"cpu": "100m", "memory": "256Mi"}),
        ({"limits": {"memory": "100Mi"}, "requests": {"memory": "50Mi"}}, {"cpu": "100m", "memory": "50Mi"}),
        ({"limits": {"memory": "a lot"}}, {"cpu": "100m", "memory": "256Mi"}),
    ],
)
def test_a_request_of_the_setting_is_at_most_the_limit_of_the_class(resources: Any, requests: dict[str, str]) -> None:
    found = container(granted({"resources": resources}, engine_requests={"cpu": "100m", "memory": "256Mi"}))["resources"]
    assert found["requests"] == requests
