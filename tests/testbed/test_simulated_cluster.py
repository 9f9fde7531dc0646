"""A simulated cluster behaves like a real one: devices run out, deletion waits, groups
form, and routes are checked.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import client, utils

pytestmark = pytest.mark.testbed("shared")

TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
GROUP, VERSION = "gateway.networking.k8s.io", "v1"


def claim_template(gpus: int) -> dict[str, Any]:
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "count": gpus},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def deployment(replicas: int, node: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "engine"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "engine"}},
            "template": {
                "metadata": {"labels": {"app": "engine"}},
                "spec": {
                    "nodeSelector": node,
                    "tolerations": TOLERATIONS,
                    "resourceClaims": [
                        {"name": "gpu", "resourceClaimTemplateName": "gpu"}
                    ],
                    "containers": [
                        {
                            "name": "engine",
                            "image": "engine:1",
                            "resources": {"claims": [{"name": "gpu"}]},
                        }
                    ],
                },
            },
        },
    }


def phases(api: client.ApiClient, namespace: str) -> list[str]:
    return sorted(
        pod.status.phase
        for pod in client.CoreV1Api(api).list_namespaced_pod(namespace).items
    )


def ready(pod: Any) -> bool:
    return any(
        each.type == "Ready" and each.status == "True"
        for each in pod.status.conditions or []
    )


def test_the_real_scheduler_allocates_devices_until_a_node_has_none_left(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    """Three pods request four GPUs each on one node that has eight."""
    utils.create_from_dict(api, claim_template(4), namespace=namespace)
    utils.create_from_dict(
        api,
        deployment(3, {"kubernetes.io/hostname": "prod-eu-l40s-0"}),
        namespace=namespace,
    )
    core = client.CoreV1Api(api)

    eventually(lambda: phases(api, namespace), equals=["Pending", "Running", "Running"])
    eventually(
        lambda: [ready(pod) for pod in core.list_namespaced_pod(namespace).items].count(
            True
        ),
        equals=2,
    )

    def refusal() -> bool:
        pods = core.list_namespaced_pod(
            namespace, field_selector="status.phase=Pending"
        ).items
        return any(
            "cannot allocate all claims" in (each.message or "")
            for pod in pods
            for each in pod.status.conditions or []
        )

    eventually(refusal)
    claims = client.ResourceV1Api(api).list_namespaced_resource_claim(namespace).items
    taken = [
        (result.pool, result.device)
        for claim in claims
        if claim.status and claim.status.allocation
        for result in claim.status.allocation.devices.results
    ]
    assert sorted(taken) == [("prod-eu-l40s-0", f"gpu-{number}") for number in range(8)]


def test_foreground_deletion_ends_when_pods_and_their_claims_are_gone(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    utils.create_from_dict(api, claim_template(1), namespace=namespace)
    utils.create_from_dict(
        api, deployment(2, {"modelplane.ai/pool": "l40s"}), namespace=namespace
    )
    apps = client.AppsV1Api(api)
    eventually(
        lambda: (
            apps.read_namespaced_deployment("engine", namespace).status.ready_replicas
        ),
        equals=2,
    )

    apps.delete_namespaced_deployment(
        "engine", namespace, propagation_policy="Foreground"
    )

    assert apps.read_namespaced_deployment("engine", namespace).metadata.finalizers == [
        "foregroundDeletion"
    ]
    eventually(lambda: len(apps.list_namespaced_deployment(namespace).items), equals=0)
    assert phases(api, namespace) == []
    assert (
        client.ResourceV1Api(api).list_namespaced_resource_claim(namespace).items == []
    )


def test_the_real_leader_worker_set_controller_forms_groups(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    template = {
        "spec": {
            "tolerations": TOLERATIONS,
            "containers": [{"name": "engine", "image": "engine:1"}],
        }
    }
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "wide"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 3, "workerTemplate": template},
        },
    }
    sets = client.CustomObjectsApi(api)
    place = ("leaderworkerset.x-k8s.io", "v1", namespace, "leaderworkersets")
    sets.create_namespaced_custom_object(*place, lws)

    eventually(
        lambda: (
            sets.get_namespaced_custom_object(*place, "wide")
            .get("status", {})
            .get("readyReplicas")
        ),
        equals=2,
    )
    pods = {
        pod.metadata.name: pod
        for pod in client.CoreV1Api(api).list_namespaced_pod(namespace).items
    }
    assert sorted(pods) == [
        "wide-0",
        "wide-0-1",
        "wide-0-2",
        "wide-1",
        "wide-1-1",
        "wide-1-2",
    ]
    environment = {
        each.name: each.value for each in pods["wide-1-2"].spec.containers[0].env
    }
    assert environment["LWS_LEADER_ADDRESS"].startswith("wide-1.wide.")
    assert (environment["LWS_GROUP_SIZE"], environment["LWS_WORKER_INDEX"]) == (
        "3",
        "2",
    )


def test_the_leader_worker_set_webhook_rejects_invalid_objects(
    api: client.ApiClient, namespace: str
) -> None:
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "wrong"},
        "spec": {
            "replicas": -1,
            "leaderWorkerTemplate": {
                "size": 3,
                "workerTemplate": {
                    "spec": {"containers": [{"name": "engine", "image": "engine:1"}]}
                },
            },
        },
    }
    with pytest.raises(client.ApiException, match="should be a non-negative integer"):
        client.CustomObjectsApi(api).create_namespaced_custom_object(
            "leaderworkerset.x-k8s.io", "v1", namespace, "leaderworkersets", lws
        )


def pod(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    container = {"name": "engine", "image": "engine:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "engine",
            "annotations": {
                f"testbed.modelplane.ai/{key}": value
                for key, value in annotations.items()
            },
        },
        "spec": {"tolerations": TOLERATIONS, "containers": [container], **spec},
    }


@dataclass(frozen=True)
class PodCase:
    story: str
    annotations: dict[str, str]
    phase: str
    ready: bool
    waiting: str | None = None
    spec: dict[str, Any] = field(default_factory=dict)


POD_CASES = [
    PodCase("a plain pod becomes Ready", {}, "Running", ready=True),
    PodCase(
        "a pod with init containers becomes Ready",
        {},
        "Running",
        ready=True,
        spec={"initContainers": [{"name": "init", "image": "i"}]},
    ),
    PodCase("ready=never stays not Ready", {"ready": "never"}, "Running", ready=False),
    PodCase(
        "ready-after=1h is Running and not Ready",
        {"ready-after": "1h"},
        "Running",
        ready=False,
    ),
    PodCase(
        "fail=image cannot be pulled",
        {"fail": "image"},
        "Pending",
        ready=False,
        waiting="ImagePullBackOff",
    ),
    PodCase(
        "fail=crash crashes again and again",
        {"fail": "crash"},
        "Running",
        ready=False,
        waiting="CrashLoopBackOff",
    ),
    PodCase("fail=exit fails for good", {"fail": "exit"}, "Failed", ready=False),
]


@pytest.mark.parametrize("case", POD_CASES, ids=lambda case: case.story)
def test_annotations_decide_the_lifecycle_of_a_pod(
    case: PodCase,
    api: client.ApiClient,
    namespace: str,
    eventually: Callable[..., None],
) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(namespace, pod(case.annotations, **case.spec))

    def seen() -> tuple[str, bool, str | None]:
        status = core.read_namespaced_pod("engine", namespace).status
        waiting = (
            status.container_statuses[0].state.waiting
            if status.container_statuses
            else None
        )
        return (
            status.phase,
            ready(core.read_namespaced_pod("engine", namespace)),
            waiting.reason if waiting else None,
        )

    eventually(seen, equals=(case.phase, case.ready, case.waiting))


def test_a_pod_that_was_ready_can_be_made_to_crash_and_to_recover(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(namespace, pod({}))
    eventually(lambda: ready(core.read_namespaced_pod("engine", namespace)))
    core.patch_namespaced_pod(
        "engine",
        namespace,
        {"metadata": {"annotations": {"testbed.modelplane.ai/fail": "crash"}}},
    )
    eventually(
        lambda: ready(core.read_namespaced_pod("engine", namespace)), equals=False
    )
    core.patch_namespaced_pod(
        "engine",
        namespace,
        {"metadata": {"annotations": {"testbed.modelplane.ai/fail": None}}},
    )
    eventually(lambda: ready(core.read_namespaced_pod("engine", namespace)))


@pytest.mark.parametrize(
    ("sleep", "grace"), [(4, 3600), (3600, 4)], ids=["sleep", "grace period"]
)
def test_a_deleted_pod_is_there_until_its_sleep_or_its_grace_period_ends(
    sleep: int,
    grace: int,
    api: client.ApiClient,
    namespace: str,
    eventually: Callable[..., None],
) -> None:
    core = client.CoreV1Api(api)
    container = {
        "name": "engine",
        "image": "engine:1",
        "lifecycle": {"preStop": {"sleep": {"seconds": sleep}}},
    }
    core.create_namespaced_pod(
        namespace, pod({}, containers=[container], terminationGracePeriodSeconds=3600)
    )
    eventually(lambda: ready(core.read_namespaced_pod("engine", namespace)))
    begun = time.monotonic()
    core.delete_namespaced_pod("engine", namespace, grace_period_seconds=grace)
    eventually(lambda: phases(api, namespace), equals=[])
    # The time of a deletion is in whole seconds.
    assert time.monotonic() - begun >= min(sleep, grace) - 1


@pytest.mark.parametrize(
    ("annotations", "outcome"),
    [({}, "succeeded"), ({"testbed.modelplane.ai/fail": "exit"}, "failed")],
)
def test_a_job_ends_as_its_annotations_say(
    annotations: dict[str, str],
    outcome: str,
    api: client.ApiClient,
    namespace: str,
    eventually: Callable[..., None],
) -> None:
    spec = {
        "restartPolicy": "Never",
        "tolerations": TOLERATIONS,
        "containers": [{"name": "fetch", "image": "fetch:1"}],
    }
    job = {
        "metadata": {"name": "fetch"},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        },
    }
    batch = client.BatchV1Api(api)
    batch.create_namespaced_job(namespace, job)
    eventually(
        lambda: getattr(batch.read_namespaced_job("fetch", namespace).status, outcome),
        equals=1,
    )


def test_pods_of_two_clusters_never_share_an_address(
    testbed: Any, kube: Callable[..., client.ApiClient], eventually: Callable[..., None]
) -> None:
    addresses = {}
    for name, running in testbed.clusters.items():
        core = client.CoreV1Api(kube(running))
        made = core.create_namespaced_pod(
            "default", pod({}) | {"metadata": {"generateName": "address-"}}
        ).metadata.name
        eventually(
            lambda core=core, made=made: bool(
                core.read_namespaced_pod(made, "default").status.pod_ip
            )
        )
        addresses[name] = core.read_namespaced_pod(made, "default").status.pod_ip
        core.delete_namespaced_pod(made, "default")
    assert len({address.rpartition(".")[0] for address in addresses.values()}) == len(
        testbed.clusters
    )


def test_a_claim_of_the_cache_class_is_bound_and_its_volume_is_deleted_with_it(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    core = client.CoreV1Api(api)
    spec = {
        "storageClassName": "testbed-rwx",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "500Gi"}},
    }
    core.create_namespaced_persistent_volume_claim(
        namespace, {"metadata": {"name": "weights"}, "spec": spec}
    )
    eventually(
        lambda: (
            core.read_namespaced_persistent_volume_claim(
                "weights", namespace
            ).status.phase
        ),
        equals="Bound",
    )
    volume = core.read_namespaced_persistent_volume_claim(
        "weights", namespace
    ).spec.volume_name

    core.delete_namespaced_persistent_volume_claim("weights", namespace)

    eventually(
        lambda: [
            each.metadata.name
            for each in core.list_persistent_volume().items
            if each.metadata.name == volume
        ],
        equals=[],
    )


def conditions(
    api: client.ApiClient, namespace: str, name: str
) -> list[tuple[str, str, str, bool]]:
    """Return type, status and reason, and whether the condition is about the present
    route.
    """
    route = client.CustomObjectsApi(api).get_namespaced_custom_object(
        GROUP, VERSION, namespace, "httproutes", name
    )
    return [
        (
            each["type"],
            each["status"],
            each["reason"],
            each["observedGeneration"] == route["metadata"]["generation"],
        )
        for parent in route.get("status", {}).get("parents", [])
        for each in parent["conditions"]
    ]


def route_to(service: str, gateway: str = "inference-gateway") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "HTTPRoute",
        "metadata": {"name": "route"},
        "spec": {
            "parentRefs": [{"name": gateway, "namespace": "modelplane-system"}],
            "rules": [{"backendRefs": [{"name": service, "port": 8000}]}],
        },
    }


def test_a_route_is_accepted_at_each_of_its_generations(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    for name in ("one", "two"):
        client.CoreV1Api(api).create_namespaced_service(
            namespace, {"metadata": {"name": name}, "spec": {"ports": [{"port": 8000}]}}
        )
    custom = client.CustomObjectsApi(api)
    good = [
        ("Accepted", "True", "Accepted", True),
        ("ResolvedRefs", "True", "ResolvedRefs", True),
    ]
    custom.create_namespaced_custom_object(
        GROUP, VERSION, namespace, "httproutes", route_to("one")
    )
    eventually(lambda: conditions(api, namespace, "route"), equals=good)

    patch = {"spec": {"rules": [{"backendRefs": [{"name": "two", "port": 8000}]}]}}
    changed = custom.patch_namespaced_custom_object(
        GROUP, VERSION, namespace, "httproutes", "route", patch
    )

    assert changed["metadata"]["generation"] == 2
    eventually(lambda: conditions(api, namespace, "route"), equals=good)


def test_a_route_to_a_missing_service_says_so_until_the_service_comes(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    client.CustomObjectsApi(api).create_namespaced_custom_object(
        GROUP, VERSION, namespace, "httproutes", route_to("late")
    )
    accepted = ("Accepted", "True", "Accepted", True)
    eventually(
        lambda: conditions(api, namespace, "route"),
        equals=[accepted, ("ResolvedRefs", "False", "BackendNotFound", True)],
    )

    client.CoreV1Api(api).create_namespaced_service(
        namespace, {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 8000}]}}
    )

    eventually(
        lambda: conditions(api, namespace, "route"),
        equals=[accepted, ("ResolvedRefs", "True", "ResolvedRefs", True)],
    )


def test_every_gateway_has_the_address_that_the_testbed_gives(
    testbed: Any, kube: Callable[..., client.ApiClient]
) -> None:
    for running in testbed.clusters.values():
        custom = client.CustomObjectsApi(kube(running))
        gateway = custom.get_namespaced_custom_object(
            GROUP, VERSION, "modelplane-system", "gateways", "inference-gateway"
        )
        assert gateway["status"]["addresses"] == [
            {"type": "IPAddress", "value": running.gateway_address}
        ]
        assert running.gateway_address.startswith("10.245.")


def test_an_inference_pool_is_accepted(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    place = ("inference.networking.k8s.io", "v1", namespace, "inferencepools")
    spec = {
        "selector": {"matchLabels": {"app": "engine"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
    }
    body = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "pool"},
        "spec": spec,
    }
    custom = client.CustomObjectsApi(api)
    custom.create_namespaced_custom_object(*place, body)

    def accepted() -> list[tuple[str, str, str]]:
        parents = (
            custom.get_namespaced_custom_object(*place, "pool")
            .get("status", {})
            .get("parents", [])
        )
        return [
            (parent["parentRef"]["name"], each["type"], each["status"])
            for parent in parents
            for each in parent["conditions"]
        ]

    eventually(
        accepted,
        equals=[
            ("inference-gateway", "Accepted", "True"),
            ("inference-gateway", "ResolvedRefs", "True"),
        ],
    )


def test_pods_without_gpus_run_on_the_system_node_outside_all_pools(
    api: client.ApiClient, namespace: str, eventually: Callable[..., None]
) -> None:
    core = client.CoreV1Api(api)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "picker"},
        "spec": {"containers": [{"name": "epp", "image": "epp:1"}]},
    }
    core.create_namespaced_pod(namespace, pod)
    eventually(
        lambda: ready(core.read_namespaced_pod("picker", namespace)), equals=True
    )
    node = core.read_node(core.read_namespaced_pod("picker", namespace).spec.node_name)
    assert node.metadata.name == "prod-eu-system"
    assert "modelplane.ai/pool" not in node.metadata.labels
    assert not node.spec.taints
