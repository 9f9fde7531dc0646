"""The podPolicy of a class: only the platform can grant it to engine pods."""

from typing import Any

import pytest

from activities.render.replica import InvalidSpec
from tests.activities.render.builders import (
    a_cluster,
    a_gang,
    a_member,
    an_engine,
    container,
    env,
    pod,
    render,
)
from tests.activities.render.topologies import POLICY

RDMA = {"rdma/hca_shared_devices_a": "1", "rdma/hca_shared_devices_b": "2"}
PAGES = {"hugepages-2Mi": "4Gi", "hugepages-1Gi": "2Gi"}


def granted(
    policy: dict[str, Any],
    *engines: dict[str, Any],
    pool: str = "h100",
    **settings: Any,
) -> Any:
    return render(
        *engines, cluster=a_cluster(pod_policies={pool: policy}), settings=settings
    )


@pytest.mark.parametrize(
    "policies",
    [{}, {"h100": {}}, {"other": POLICY}],
    ids=["none", "an empty one", "of another pool"],
)
def test_a_pool_without_a_policy_has_unchanged_pods(
    policies: dict[str, Any],
) -> None:
    assert pod(render(cluster=a_cluster(pod_policies=policies))) == pod(render())


@pytest.mark.parametrize(
    ("device", "requests", "shares"),
    [
        ("gpu.nvidia.com", [("gpu", "gpu.nvidia.com", 8)], 8),
        ("gpu.nvidia.com", [("gpu", "gpu.nvidia.com", 1)], 1),
        ("gpu.nvidia.com", [("gpu", "gpu.nvidia.com", 2), ("nic", "efa", 16)], 2),
        ("gpu.nvidia.com", [("nic", "efa", 16)], 1),
        (None, [("cpu", "", 3)], 3),
    ],
    ids=["all", "one", "other devices too", "other devices alone", "slots"],
)
def test_resources_are_those_of_each_claimed_device(
    device: str | None, requests: list[tuple[str, str, int]], shares: int
) -> None:
    resources: dict[str, Any] = {
        "requests": {"cpu": "1500m", "memory": "0.5Gi"},
        "limits": {"memory": "2Gi"},
    }
    if device:
        resources["device"] = device
    claims = [
        {"name": name, "count": count} | ({"deviceClassName": of} if of else {})
        for name, of, count in requests
    ]
    found = granted(
        {"resources": resources}, an_engine("main", a_member(requests=claims))
    )
    given = container(found)["resources"]
    assert given["requests"] == {
        "cpu": f"{1500 * shares}m",
        "memory": f"{0.5 * shares}Gi",
    }
    assert given["limits"] == {"memory": f"{2 * shares}Gi"}


def test_slots_are_not_claimed() -> None:
    slot = {"name": "cpu", "count": 2}
    rendered = render(an_engine("main", a_member(requests=[slot])))
    assert "claims" not in container(rendered)["resources"]
    assert "resourceClaims" not in pod(rendered)["spec"]
    assert all(
        item.key != "resource-claim-main-standalone" for item in rendered.objects
    )


def test_each_member_has_the_policy_of_its_own_pool() -> None:
    rendered = granted(POLICY, a_gang(leader={"pool": "head"}))
    assert pod(rendered)["spec"] == pod(render(a_gang(leader={"pool": "head"})))["spec"]
    worker = pod(rendered, role="Worker")["spec"]
    assert (worker["serviceAccountName"], worker["automountServiceAccountToken"]) == (
        "engines",
        False,
    )


def test_requests_and_limits_come_from_the_class_per_resource() -> None:
    resources = container(granted(POLICY))["resources"]
    assert resources["requests"] == {
        "cpu": "16",
        "memory": "64Gi",
        "ephemeral-storage": "20Gi",
        **PAGES,
        **RDMA,
    }
    assert resources["limits"] == {
        "cpu": "64",
        "memory": "512Gi",
        "ephemeral-storage": "100Gi",
        **PAGES,
        **RDMA,
    }
    assert resources["claims"] == [{"name": "devices"}]
    own = container(
        granted(
            {"resources": {"requests": {"cpu": "16"}}},
            engine_requests={"cpu": "1", "memory": "1Gi"},
        )
    )["resources"]
    assert (own["requests"], "limits" in own) == ({"cpu": "16", "memory": "1Gi"}, False)


def test_devices_that_an_engine_claims_are_counted_as_it_claims_them() -> None:
    claim = {"name": "card", "resourceName": "rdma/hca_shared_devices_a", "count": 4}
    resources = container(
        granted({"rdma": POLICY["rdma"]}, an_engine("main", a_member(requests=[claim])))
    )["resources"]
    assert resources["limits"] == {
        "rdma/hca_shared_devices_a": "4",
        "rdma/hca_shared_devices_b": "2",
    }


def test_huge_pages_are_mounted_by_size() -> None:
    rendered = granted(POLICY)
    volumes = {
        volume["name"]: volume["emptyDir"]
        for volume in pod(rendered)["spec"]["volumes"]
    }
    assert volumes == {
        "dshm": {"medium": "Memory", "sizeLimit": "64Gi"},
        "hugepages-2mi": {"medium": "HugePages-2Mi"},
        "hugepages-1gi": {"medium": "HugePages-1Gi"},
    }
    mounts = {
        mount["name"]: mount["mountPath"]
        for mount in container(rendered)["volumeMounts"]
    }
    assert mounts == {
        "dshm": "/dev/shm",  # noqa: S108
        "hugepages-2mi": "/dev/hugepages-2Mi",
        "hugepages-1gi": "/dev/hugepages-1Gi",
    }


def test_the_setting_sizes_shared_memory_where_the_class_does_not() -> None:
    volumes = pod(granted({"seccomp": {}}, shm_size_limit="8Gi"))["spec"]["volumes"]
    assert volumes == [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    ]


def test_variables_come_first_and_the_owners_own_win() -> None:
    own = {"name": "UCX_TLS", "value": "tcp"}
    rendered = granted(POLICY, a_gang(leader={"env": [own]}))
    assert env(rendered) == {
        "MODELPLANE_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
        "MODELPLANE_RANK": "$(LWS_WORKER_INDEX)",
        "NCCL_IB_HCA": "mlx5",
        "UCX_TLS": "tcp",
    }
    assert env(rendered, role="Worker")["UCX_TLS"] == "rc,cuda"


def test_taints_of_the_class_are_tolerated_in_addition_to_those_of_devices() -> None:
    policy = {
        "tolerations": [  # type: ignore[misc]
            *POLICY["tolerations"],
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        ]
    }
    assert pod(granted(policy))["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "acme.example/rdma", "operator": "Exists"},
        {
            "key": "acme.example/owner",
            "operator": "Equal",
            "value": "ml",
            "effect": "NoExecute",
        },
    ]


@pytest.mark.parametrize(
    ("profile", "rendered"),
    [
        (None, {"type": "RuntimeDefault"}),
        ({"type": "Unconfined"}, {"type": "Unconfined"}),
        (
            POLICY["seccomp"],
            {"type": "Localhost", "localhostProfile": "profiles/engine.json"},
        ),
    ],
    ids=["none", "unconfined", "of the node"],
)
def test_the_class_sets_the_seccomp_profile(
    profile: Any, rendered: dict[str, str]
) -> None:
    policy = {"runtimeClassName": "nvidia", **({"seccomp": profile} if profile else {})}
    spec = pod(granted(policy))["spec"]
    assert (spec["securityContext"], spec["runtimeClassName"]) == (
        {"seccompProfile": rendered},
        "nvidia",
    )


def test_only_the_engine_container_gets_capabilities() -> None:
    policy = {"capabilities": ["IPC_LOCK", "SYS_NICE"]}
    pair = [
        an_engine(name, a_member(args=["--port=8001"]), phase=phase)
        for name, phase in (("alpha", "Decode"), ("beta", "Prefill"))
    ]
    rendered = render(
        *pair, mode="PrefillDecode", cluster=a_cluster(pod_policies={"h100": policy})
    )
    assert container(rendered, "alpha")["securityContext"] == {
        "capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}
    }
    assert pod(rendered, "alpha")["spec"]["initContainers"][0]["securityContext"][
        "capabilities"
    ] == {"drop": ["ALL"]}
    assert "securityContext" not in container(granted({"env": []}))


def test_a_capability_that_is_not_on_the_list_is_not_granted() -> None:
    """Admission rejects it.

    A class that was stored without that check stops its replicas with a message.
    """
    with pytest.raises(
        InvalidSpec,
        match=(
            r"pool h100: podPolicy of its InferenceClass cannot be read: "
            r"capabilities\.0: .*; apply the"
        ),
    ):
        granted({"capabilities": ["SYS_ADMIN"]})


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({"limits": {"memory": "100Mi"}}, {"cpu": "100m", "memory": "100Mi"}),
        (
            {"limits": {"cpu": "0.05", "memory": "1Gi"}},
            {"cpu": "0.05", "memory": "256Mi"},
        ),
        ({"limits": {"memory": "268435456"}}, {"cpu": "100m", "memory": "256Mi"}),
        (
            {"limits": {"memory": "100Mi"}, "requests": {"memory": "50Mi"}},
            {"cpu": "100m", "memory": "50Mi"},
        ),
        ({"limits": {"memory": "a lot"}}, {"cpu": "100m", "memory": "256Mi"}),
    ],
)
def test_a_request_of_the_setting_is_at_most_the_limit_of_the_class(
    resources: Any, requests: dict[str, str]
) -> None:
    found = container(
        granted(
            {"resources": resources}, engine_requests={"cpu": "100m", "memory": "256Mi"}
        )
    )["resources"]
    assert found["requests"] == requests
