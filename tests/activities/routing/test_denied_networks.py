"""Networks that are denied to endpoints: from the setting or from the control cluster."""

import ipaddress
from typing import Any
from unittest.mock import AsyncMock

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ObjectList, Selection
from activities.routing.denied_networks import DeniedNetworks, bounded
from api_types.errors import InvalidInput, PermissionDenied, StackMissing
from api_types.limits import DENIED_NETWORKS_MAX
from api_types.messages.gateway_work import ApplyBackend, WatchGateway
from api_types.sections.clusters import ControlClusterSettings
from testbed.cluster.control_plane import SERVICE_CIDR
from tests.activities.routing.conftest import Control

API_SERVICE = {"spec": {"clusterIPs": ["10.96.0.1", "fd00::1"]}}
SERVICES = [{"spec": {"cidrs": ["10.96.0.0/16", "fd00::/112"]}}]
NODES: list[Any] = [
    {"spec": {"podCIDRs": ["10.244.0.0/24"]}},
    {"spec": {"podCIDRs": ["10.244.1.0/24"]}},
    {"spec": {}},
    {"spec": None},
]


def a_cluster(services: list[Any] | Exception, nodes: list[Any] | Exception) -> Any:
    async def listed(selection: Selection, keep: Any) -> ObjectList:
        found = {kinds.SERVICE_CIDR: services, kinds.NODE: nodes}[selection.kind]
        if isinstance(found, Exception):
            raise found
        return ObjectList([keep(item) for item in found], "1")

    return AsyncMock(
        ClusterApi, **{"list.side_effect": listed, "get.return_value": API_SERVICE}
    )


@pytest.mark.parametrize(
    ("services", "nodes", "want"),
    [
        (SERVICES, NODES, ["10.96.0.0/16", "10.244.0.0/23", "fd00::/112"]),
        (
            StackMissing("not served"),
            NODES,
            ["10.96.0.1/32", "10.244.0.0/23", "fd00::1/128"],
        ),
        (
            PermissionDenied("403"),
            PermissionDenied("403"),
            ["10.96.0.1/32", "fd00::1/128"],
        ),
        ([{"spec": {"cidrs": ["no network", 7]}}], [], []),
    ],
    ids=["told", "before Kubernetes 1.33", "may not be read", "no networks"],
)
async def test_the_networks_of_the_cluster_are_denied(
    services: list[Any] | Exception, nodes: list[Any] | Exception, want: list[str]
) -> None:
    assert await DeniedNetworks().of(a_cluster(services, nodes)) == want


async def test_the_networks_of_the_setting_are_denied_without_a_request() -> None:
    cluster = a_cluster(SERVICES, NODES)
    settings = ControlClusterSettings.model_validate(
        {"endpointDenyCidrs": ["192.168.0.0/16"]}
    )
    assert await DeniedNetworks(settings.endpoint_deny_cidrs).of(cluster) == [
        "192.168.0.0/16"
    ]
    assert await DeniedNetworks(()).of(cluster) == []
    cluster.list.assert_not_called()


async def test_the_cluster_is_not_asked_for_each_endpoint() -> None:
    cluster, denied = a_cluster(SERVICES, NODES), DeniedNetworks()
    assert await denied.of(cluster) == await denied.of(cluster)
    assert cluster.list.call_count == 2


def test_many_networks_are_widened_until_they_are_few_and_none_is_lost() -> None:
    texts = [f"10.{at}.{at % 7 * 30}.0/24" for at in range(200)] + [
        f"fd00:{at:x}::/64" for at in range(100)
    ]
    found = [ipaddress.ip_network(text) for text in bounded(texts)]
    assert len(found) <= DENIED_NETWORKS_MAX
    for text in texts:
        network: Any = ipaddress.ip_network(text)
        assert any(
            each.version == network.version and network.subnet_of(each)
            for each in found
        ), text
    public = ipaddress.ip_address("34.55.100.10")
    assert not any(public in each for each in found)


@pytest.mark.testbed("shared")
@pytest.mark.parametrize("owner", ["ModelEndpoint", "ModelReplica"])
async def test_endpoints_in_the_service_network_get_no_objects(
    control: Control, owner: Any
) -> None:
    facts = await control.run(control.activities.connect_gateway, WatchGateway(uid="g"))
    assert SERVICE_CIDR in facts.denied_cidrs
    order = ApplyBackend(
        owner=owner,
        namespace=control.namespace,
        name="a",
        uid="u",
        url="http://[::ffff:10.96.0.1]/v1",
    )
    with pytest.raises(
        InvalidInput,
        match=f"Invalid spec.url: .* is 10.96.0.1, in {SERVICE_CIDR}, where endpoints may not be",
    ):
        await control.run(control.activities.apply_endpoint_backend, order)
    assert await control.names(kinds.SERVICE) == []
    # The network of the gateways of the testbed's clusters.
    await control.run(
        control.activities.apply_endpoint_backend,
        order.model_copy(update={"url": "http://10.245.0.1"}),
    )
