"""The observation of a cluster: nodes and devices per pool, the gateway, endpoints of Services."""

from typing import Any

import pytest

from activities.observe.capacity import observe_nodes, read_node, read_slice
from activities.observe.endpoints import read_endpoints
from activities.observe.gateway import observe_gateway
from api_types.limits import NODE_RESOURCES_MAX, POOLS_WITH_RESOURCES_MAX
from api_types.messages.observations import ObservedNodes


def a_node(
    name: str,
    pool: str = "h100",
    *,
    ready: str = "True",
    cordoned: bool = False,
    allocatable: dict[str, Any] | None = None,
) -> dict[str, Any]:
    spec = {"unschedulable": True} if cordoned else {}
    metadata = {"name": name, "labels": {"modelplane.ai/pool": pool} if pool else {}}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": allocatable or {},
        },
    }


def a_slice(
    node: str, devices: int, *, generation: int = 1, driver: str = "gpu.nvidia.com"
) -> dict[str, Any]:
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": generation},
        "devices": [{}] * devices,
    }
    return {"metadata": {"name": f"{node}-{driver}-{generation}"}, "spec": spec}


def test_nodes_are_counted_by_pool() -> None:
    nodes = [
        a_node("a"),
        a_node("b", ready="Unknown"),
        a_node("c", cordoned=True),
        a_node("d", "l40s"),
        a_node("e", ""),
    ]
    slices = [
        a_slice("a", 8),
        a_slice("a", 4, driver="dra.net"),
        a_slice("c", 8),
        a_slice("d", 2),
        a_slice("elsewhere", 8),
    ]
    found = observe_nodes(
        [seen for node in nodes if (seen := read_node(node))], map(read_slice, slices)
    )
    assert found == [
        ObservedNodes(
            pool="h100", total=3, ready=2, schedulable=1, devices=20, resources=[]
        ),
        ObservedNodes(
            pool="l40s", total=1, ready=1, schedulable=1, devices=2, resources=[]
        ),
    ]


def test_the_resources_of_a_pool_are_those_that_a_ready_node_offers() -> None:
    offered = {"cpu": "8", "nvidia.com/gpu": "8", "rdma/hca": 0}
    nodes = [
        a_node("a", allocatable=offered),
        a_node("b", allocatable={"amd.com/gpu": "1", "nvidia.com/gpu": "8"}),
        a_node("c", ready="False", allocatable={"google.com/tpu": "4"}),
    ]
    (found,) = observe_nodes([seen for node in nodes if (seen := read_node(node))], [])
    assert found.resources == ["amd.com/gpu", "nvidia.com/gpu"]


def test_more_resources_than_a_report_has_are_unknown() -> None:
    names = {f"example.com/r{n}": "1" for n in range(NODE_RESOURCES_MAX + 1)}
    pools = [f"pool-{n:03}" for n in range(POOLS_WITH_RESOURCES_MAX + 1)]
    nodes = [a_node("many", "a", allocatable=names), *(a_node(p, p) for p in pools)]
    found = observe_nodes([seen for node in nodes if (seen := read_node(node))], [])
    unknown = [each.pool for each in found if each.resources is None]
    assert unknown == ["a", *pools[-2:]]


def test_devices_of_an_outdated_generation_are_not_counted_twice() -> None:
    nodes = [seen for seen in [read_node(a_node("a"))] if seen]
    (found,) = observe_nodes(
        nodes, map(read_slice, [a_slice("a", 8), a_slice("a", 7, generation=2)])
    )
    assert found.devices == 7


ACCEPTED, PROGRAMMED = (
    {"type": kind, "status": "True"} for kind in ("Accepted", "Programmed")
)
GATEWAYS = [
    (
        "no gateway",
        None,
        ("", "Gateway modelplane-system/inference-gateway does not exist"),
    ),
    (
        "no condition",
        {},
        (
            "",
            "Gateway modelplane-system/inference-gateway: Accepted is not reported yet",
        ),
    ),
    (
        "no address",
        {"conditions": [ACCEPTED, PROGRAMMED]},
        ("", "Gateway modelplane-system/inference-gateway has no address yet"),
    ),
    (
        "not programmed",
        {
            "conditions": [
                ACCEPTED,
                {
                    "type": "Programmed",
                    "status": "False",
                    "reason": "Pending",
                    "message": "waiting",
                },
            ],
            "addresses": [{"value": "1.2.3.4"}],
        },
        (
            "",
            "Gateway modelplane-system/inference-gateway: Programmed is False: Pending: waiting",
        ),
    ),
    (
        "serving",
        {
            "conditions": [ACCEPTED, PROGRAMMED],
            "addresses": [{"value": "1.2.3.4"}, {"value": "::1"}],
        },
        ("1.2.3.4", ""),
    ),
]


@pytest.mark.parametrize(
    ("status", "want"),
    [case[1:] for case in GATEWAYS],
    ids=[case[0] for case in GATEWAYS],
)
def test_a_gateway_has_an_address_or_a_reason(
    status: dict[str, Any] | None, want: tuple[str, str]
) -> None:
    assert (
        observe_gateway(
            None
            if status is None
            else {"metadata": {"generation": 1}, "status": status}
        )
        == want
    )


def test_endpoints_are_ready_unless_they_say_otherwise() -> None:
    endpoints = [
        {"conditions": {"ready": True}},
        {"conditions": {"ready": False}},
        {"conditions": {}},
        {},
    ]
    metadata = {
        "name": "x",
        "namespace": "n",
        "labels": {"kubernetes.io/service-name": "svc"},
    }
    assert read_endpoints({"metadata": metadata, "endpoints": endpoints}) == (
        "n",
        "svc",
        3,
    )
