"""A class may grant settings to pods, and a tenant cannot request any of them."""

from typing import Any

import pytest

from api_types.resources.parts.pod_policy import policies_by_pool
from tests.activities.render.topologies import POLICY
from tests.api_types.builders import (
    a_class,
    a_container,
    a_deployment,
    a_member,
    an_engine,
    problems,
)

AT = "spec.podPolicy"
FULL = {
    **POLICY,
    "capabilities": ["IPC_LOCK", "SYS_NICE", "SYS_PTRACE"],
    "runtimeClassName": "nvidia",
}

REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "a capability that is not on the list",
        {"capabilities": ["SYS_ADMIN"]},
        [
            f'{AT}.capabilities[0]: must be IPC_LOCK, SYS_NICE or SYS_PTRACE, got "SYS_ADMIN"'
        ],
    ),
    (
        "a negative number as an amount",
        {"shmSize": -1},
        [
            (
                f"{AT}.shmSize: must be a quantity of more than 0, as a string: "
                '"64Gi" of memory, "500m" of CPU; got -1'
            )
        ],
    ),
    (
        "a negative amount",
        {"shmSize": "-1"},
        [f'{AT}.shmSize: must be more than 0, got "-1"'],
    ),
    (
        "a capability twice",
        {"capabilities": ["IPC_LOCK", "IPC_LOCK"]},
        [f"{AT}.capabilities: name each capability once"],
    ),
    (
        "half a page",
        {"hugepages": [{"size": "2Mi", "amount": "3Mi"}]},
        [
            f'{AT}.hugepages[size=2Mi].amount: must be a multiple of the page size 2Mi, got "3Mi"'
        ],
    ),
    (
        "pages of no size",
        {"hugepages": [{"size": "1Gi", "amount": "0"}]},
        [f'{AT}.hugepages[size=1Gi].amount: must be more than 0, got "0"'],
    ),
    (
        "a variable of the platform",
        {"env": [{"name": "MODELPLANE_RANK", "value": "0"}]},
        [
            (
                f"{AT}.env[name=MODELPLANE_RANK].name: the platform sets names that "
                "begin with MODELPLANE_ or LWS_ for each pod"
            )
        ],
    ),
    (
        "a variable that Kubernetes refuses",
        {"env": [{"name": "A=B", "value": "0"}]},
        [
            (
                f"{AT}.env[name=A=B].name: must be letters, digits and underscores, "
                'not beginning with a digit, got "A=B"'
            )
        ],
    ),
    (
        "a request above its limit",
        {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
        [f'{AT}.resources.requests.memory: must be at most the limit "1Gi", got "2Gi"'],
    ),
    (
        "no processors",
        {"resources": {"limits": {"cpu": "0"}}},
        [f'{AT}.resources.limits.cpu: must be more than 0, got "0"'],
    ),
    (
        "memory as a device",
        {"rdma": [{"resourceName": "memory"}]},
        [
            (
                f"{AT}.rdma[resourceName=memory].resourceName: must look like "
                '"rdma/hca_shared_devices_a", got "memory"'
            )
        ],
    ),
    (
        "a resource of Kubernetes as a device",
        {"rdma": [{"resourceName": "kubernetes.io/x"}]},
        [
            (
                f"{AT}.rdma[resourceName=kubernetes.io/x].resourceName: must look "
                'like "rdma/hca_shared_devices_a", got "kubernetes.io/x"'
            )
        ],
    ),
    (
        "a profile without its path",
        {"seccomp": {"type": "Localhost"}},
        [f"{AT}.seccomp.localhostProfile: required because type is Localhost"],
    ),
    (
        "a path without its type",
        {"seccomp": {"localhostProfile": "a.json"}},
        [f"{AT}.seccomp.localhostProfile: allowed only with type: Localhost"],
    ),
    (
        "a path to another folder of the node",
        {"seccomp": {"type": "Localhost", "localhostProfile": "../x"}},
        [
            (
                f"{AT}.seccomp.localhostProfile: must be a path below the kubelet's "
                'folder of profiles, without "..", got "../x"'
            )
        ],
    ),
    (
        "a runtime class without a name",
        {"runtimeClassName": "A B"},
        [f'{AT}.runtimeClassName: must be a DNS subdomain, got "A B"'],
    ),
    (
        "no shared memory",
        {"shmSize": "-1Gi"},
        [f'{AT}.shmSize: must be more than 0, got "-1Gi"'],
    ),
    (
        "a value that nothing compares",
        {"tolerations": [{"key": "a", "value": "b"}]},
        [
            (
                f"{AT}.tolerations[0].value: operator Exists (the default) takes no "
                "value; set operator: Equal"
            )
        ],
    ),
    (
        "a taint that no node can have",
        {"tolerations": [{"key": "acme.example/a b"}]},
        [
            f'{AT}.tolerations[0].key: "acme.example/a b" is not a valid Kubernetes label key'
        ],
    ),
    (
        "a value that no taint can have",
        {"tolerations": [{"key": "a", "operator": "Equal", "value": "-b"}]},
        [f'{AT}.tolerations[0].value: must be a label value, got "-b"'],
    ),
]


def test_a_class_may_grant_all_settings_that_engines_need() -> None:
    assert problems(a_class(podPolicy=FULL)) == []


@pytest.mark.parametrize(
    ("policy", "said"),
    [case[1:] for case in REFUSED],
    ids=[case[0] for case in REFUSED],
)
def test_a_policy_that_a_cluster_would_reject_is_rejected_at_admission(
    policy: dict[str, Any], said: list[str]
) -> None:
    assert problems(a_class(podPolicy=policy)) == said


OF_THE_POD = {
    "securityContext": {"seccompProfile": {"type": "Unconfined"}},
    "runtimeClassName": "nvidia",
    "serviceAccountName": "admin",
    "tolerations": [{"operator": "Exists"}],
    "volumes": [{"name": "x", "emptyDir": {}}],
    "hostIPC": True,
}
OF_THE_CONTAINER = {
    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    "resources": {"limits": {"hugepages-2Mi": "4Gi"}},
    "volumeMounts": [{"name": "x", "mountPath": "/dev/hugepages"}],
}


@pytest.mark.parametrize("field", OF_THE_POD)
def test_a_tenant_cannot_request_pod_settings_of_the_platform(field: str) -> None:
    member = a_member(template={"spec": {field: OF_THE_POD[field]}})
    (said,) = problems(a_deployment(an_engine(member)))
    assert said.startswith(
        f"spec.template.spec.engines[name=a].members[0].template.spec.{field}: unknown field"
    )


@pytest.mark.parametrize("field", OF_THE_CONTAINER)
def test_a_tenant_cannot_request_container_settings_of_the_platform(
    field: str,
) -> None:
    (said,) = problems(
        a_deployment(an_engine(a_container(**{field: OF_THE_CONTAINER[field]})))
    )
    assert f".containers[0].{field}: unknown field" in said


def test_a_tenant_has_no_field_for_a_policy() -> None:
    for deployment in (
        a_deployment(podPolicy=FULL),
        a_deployment(an_engine(podPolicy=FULL)),
        a_deployment(an_engine(a_member(podPolicy=FULL))),
    ):
        (said,) = problems(deployment)
        assert "podPolicy: unknown field; only the platform sets it" in said


GPUS = [
    {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 8,
    },
    {"name": "nic", "driver": "efa", "deviceClassName": "efa", "count": 16},
]
NODE = {"cpu": "180", "memory": "1900Gi"}


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({"requests": {"cpu": "22", "memory": "200Gi"}}, []),
        (
            {"requests": {"cpu": "32"}},
            [
                (
                    f"{AT}.resources.requests.cpu: 32 for each of 8 devices is more than the "
                    "node has, 180; lower it, or correct nodeResources"
                )
            ],
        ),
        (
            {"limits": {"cpu": "32"}},
            [
                (
                    f"{AT}.resources.limits.cpu: 32 for each of 8 devices is more than the "
                    "node has, 180; lower it, or correct nodeResources"
                )
            ],
        ),
        ({"limits": {"cpu": "32"}, "requests": {"cpu": "1"}}, []),
        (
            {"device": "efa", "requests": {"cpu": "22"}},
            [
                (
                    f"{AT}.resources.requests.cpu: 22 for each of 16 devices is more than the "
                    "node has, 180; lower it, or correct nodeResources"
                )
            ],
        ),
        (
            {"device": "tpu"},
            [
                (
                    f"{AT}.resources.device: no device of this class has this deviceClassName "
                    "or resourceName; the class has efa, gpu.nvidia.com"
                )
            ],
        ),
    ],
    ids=["fits", "a request", "a limit alone", "a limit", "other devices", "unknown"],
)
def test_requests_for_all_devices_fit_a_node(
    resources: dict[str, Any], found: list[str]
) -> None:
    document = a_class(*GPUS, nodeResources=NODE, podPolicy={"resources": resources})
    assert problems(document) == found


def test_the_facts_of_a_pool_name_the_counted_device() -> None:
    policy = {"resources": {"requests": {"cpu": "4"}}}
    classes: dict[str, dict[str, Any]] = {
        "gpus": {"devices": GPUS, "podPolicy": policy},
        "cpus": {"devices": [{"name": "cpu", "claim": "Slot"}], "podPolicy": policy},
        "none": {"devices": GPUS},
    }
    pools = [{"name": name, "className": name} for name in classes]
    assert policies_by_pool(pools, classes) == {
        "gpus": {"resources": {"device": "gpu.nvidia.com", "requests": {"cpu": "4"}}},
        "cpus": policy,
    }
