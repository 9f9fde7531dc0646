"""The compute API of the fake, used by the official clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from google.api_core import exceptions

from fakes.gcp.clients import Clients, compute_client
from fakes.gcp.fake import FakeGoogle
from tests.environment.late import Late
from tests.fakes.gcp.objects import REGION, plant_network

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from google.cloud import compute_v1
else:
    compute_v1 = Late("google.cloud.compute_v1")

Client = Callable[[type[Any]], Any]


@pytest.fixture
def client(google: FakeGoogle) -> Iterator[Client]:
    made: list[Any] = []

    def make(kind: type[Any], key: str | None = None) -> Any:
        made.append(compute_client(kind, google.compute_url, key))
        return made[-1]

    yield make
    for each in made:
        each.transport.close()


@pytest.fixture
def networks(client: Client) -> compute_v1.NetworksClient:
    return client(compute_v1.NetworksClient)


@pytest.fixture
def subnetworks(client: Client) -> compute_v1.SubnetworksClient:
    return client(compute_v1.SubnetworksClient)


def insert_network(
    networks: compute_v1.NetworksClient,
    google: FakeGoogle,
    name: str = "prod",
    request_id: str = "",
) -> Any:
    network = compute_v1.Network(
        name=name, auto_create_subnetworks=False, description="ours"
    )
    request = {
        "project": google.project,
        "network_resource": network,
        "request_id": request_id,
    }
    return networks.insert_unary(request=request)


def a_subnet(
    google: FakeGoogle,
    name: str = "prod-nodes",
    cidr: str = "10.0.0.0/24",
    network: str = "prod",
) -> compute_v1.Subnetwork:
    path = f"projects/{google.project}/global/networks/{network}"
    return compute_v1.Subnetwork(
        name=name, network=path, region=REGION, ip_cidr_range=cidr
    )


def reason_of(error: exceptions.GoogleAPICallError) -> str:
    return str(error.errors[0]["reason"])


def test_a_network_is_there_when_its_operation_is_done(
    google: FakeGoogle, client: Client, networks: compute_v1.NetworksClient
) -> None:
    operation = insert_network(networks, google)
    operations = client(compute_v1.GlobalOperationsClient)
    statuses = [
        operations.get(project=google.project, operation=operation.name).status
        for _ in range(2)
    ]
    assert statuses == [
        compute_v1.Operation.Status.RUNNING,
        compute_v1.Operation.Status.DONE,
    ]
    network = networks.get(project=google.project, network="prod")
    assert (network.description, network.auto_create_subnetworks) == ("ours", False)
    assert [each.name for each in networks.list(project=google.project)] == [
        "default",
        "prod",
    ]


def test_a_name_is_taken_once(
    google: FakeGoogle, networks: compute_v1.NetworksClient
) -> None:
    insert_network(networks, google)
    with pytest.raises(exceptions.Conflict) as caught:
        insert_network(networks, google)
    assert reason_of(caught.value) == "alreadyExists"


def test_a_request_id_gives_the_operation_that_it_began(
    google: FakeGoogle, networks: compute_v1.NetworksClient
) -> None:
    identity = "00000000-0000-5000-8000-000000000001"
    operations = [
        insert_network(networks, google, request_id=identity).name for _ in range(2)
    ]
    assert operations[0] == operations[1]
    assert [
        call.outcome for call in google.ledger().calls("compute.networks.insert")
    ] == ["OK", "REPEATED"]
    assert google.ledger().creations() == [
        f"projects/{google.project}/global/networks/prod"
    ]


def test_an_old_request_id_creates_nothing_even_after_a_deletion(
    google: FakeGoogle, networks: compute_v1.NetworksClient
) -> None:
    insert_network(networks, google, request_id="1")
    google.finish()
    networks.delete_unary(project=google.project, network="prod")
    google.finish()
    assert (
        insert_network(networks, google, request_id="1").status
        == compute_v1.Operation.Status.DONE
    )
    assert google.remains() == []
    insert_network(networks, google, request_id="2")


def test_a_network_that_is_not_there_is_not_found(
    google: FakeGoogle, networks: compute_v1.NetworksClient
) -> None:
    with pytest.raises(exceptions.NotFound) as caught:
        networks.get(project=google.project, network="none")
    assert reason_of(caught.value) == "notFound"
    with pytest.raises(exceptions.NotFound):
        networks.delete_unary(project=google.project, network="none")


def test_the_quota_of_networks(
    google: FakeGoogle, client: Client, networks: compute_v1.NetworksClient
) -> None:
    google.capacity.set_limit("NETWORKS", 1)
    with pytest.raises(exceptions.Forbidden) as caught:
        insert_network(networks, google)
    assert reason_of(caught.value) == "quotaExceeded"
    quotas = {
        quota.metric: (quota.limit, quota.usage)
        for quota in client(compute_v1.ProjectsClient)
        .get(project=google.project)
        .quotas
    }
    assert quotas["NETWORKS"] == (1, 1)


def test_a_subnet_waits_for_its_network_and_becomes_ready(
    google: FakeGoogle,
    client: Client,
    networks: compute_v1.NetworksClient,
    subnetworks: compute_v1.SubnetworksClient,
) -> None:
    insert_network(networks, google)
    with pytest.raises(exceptions.BadRequest) as caught:
        subnetworks.insert_unary(
            project=google.project, region=REGION, subnetwork_resource=a_subnet(google)
        )
    assert reason_of(caught.value) == "resourceNotReady"
    google.finish()
    operation = subnetworks.insert_unary(
        project=google.project, region=REGION, subnetwork_resource=a_subnet(google)
    )
    assert operation.region.endswith(f"/regions/{REGION}")
    operations = client(compute_v1.RegionOperationsClient)
    for _ in range(2):
        operations.get(project=google.project, region=REGION, operation=operation.name)
    assert (
        subnetworks.get(
            project=google.project, region=REGION, subnetwork="prod-nodes"
        ).state
        == "READY"
    )


@pytest.mark.parametrize(
    ("subnet", "error"),
    [
        ({"cidr": "10.0.0.1/24"}, exceptions.BadRequest),
        ({"cidr": "10.1.128.0/20"}, exceptions.BadRequest),
        ({"network": "none"}, exceptions.NotFound),
    ],
    ids=["malformed", "overlapping", "no network"],
)
def test_a_subnet_that_cannot_be_is_refused(
    google: FakeGoogle,
    subnetworks: compute_v1.SubnetworksClient,
    subnet: dict[str, str],
    error: type[Exception],
) -> None:
    plant_network(google)
    with pytest.raises(error):
        subnetworks.insert_unary(
            project=google.project,
            region=REGION,
            subnetwork_resource=a_subnet(google, "other", **subnet),
        )


def refused_deletion(google: FakeGoogle, client: Client) -> Any:
    """Return the error of the operation that deletes the network."""
    networks = client(compute_v1.NetworksClient)
    operation = networks.delete_unary(project=google.project, network="prod")
    google.finish()
    operations = client(compute_v1.GlobalOperationsClient)
    done = operations.get(project=google.project, operation=operation.name)
    (error,) = done.error.errors
    return error


def test_a_network_in_use_is_not_deleted(
    google: FakeGoogle,
    client: Client,
    networks: compute_v1.NetworksClient,
    subnetworks: compute_v1.SubnetworksClient,
) -> None:
    plant_network(google)
    error = refused_deletion(google, client)
    assert error.code == "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
    assert error.message.startswith("The network resource")
    assert error.message.endswith("/subnetworks/prod-nodes'")
    subnetworks.delete_unary(
        project=google.project, region=REGION, subnetwork="prod-nodes"
    )
    google.finish()
    networks.delete_unary(project=google.project, network="prod")
    google.finish()
    assert google.remains() == []


def test_a_deletion_that_runs_is_not_begun_again(
    google: FakeGoogle, subnetworks: compute_v1.SubnetworksClient
) -> None:
    plant_network(google)
    subnetworks.delete_unary(
        project=google.project, region=REGION, subnetwork="prod-nodes"
    )
    with pytest.raises(exceptions.BadRequest, match="not ready"):
        subnetworks.delete_unary(
            project=google.project, region=REGION, subnetwork="prod-nodes"
        )


@pytest.mark.usefixtures("cluster")
def test_a_cluster_holds_its_subnet(
    google: FakeGoogle, subnetworks: compute_v1.SubnetworksClient
) -> None:
    with pytest.raises(exceptions.BadRequest, match="clusters/prod"):
        subnetworks.delete_unary(
            project=google.project, region=REGION, subnetwork="prod-nodes"
        )


def test_the_parts_of_a_load_balancer_are_deleted_in_order(
    google: FakeGoogle, client: Client, cluster: str
) -> None:
    rule, pool, check, firewall, address, let_in = (
        name.rpartition("/")[2]
        for name in google.plant_leftover(cluster, "forwarding_rule")
    )
    where = {"project": google.project, "region": REGION}
    pools, firewalls = (
        client(compute_v1.TargetPoolsClient),
        client(compute_v1.FirewallsClient),
    )
    with pytest.raises(exceptions.BadRequest, match="forwardingRules"):
        pools.delete_unary(**where, target_pool=pool)
    client(compute_v1.ForwardingRulesClient).delete_unary(**where, forwarding_rule=rule)
    google.finish()
    pools.delete_unary(**where, target_pool=pool)
    client(compute_v1.AddressesClient).delete_unary(**where, address=address)
    for each in (firewall, let_in):
        firewalls.delete_unary(project=google.project, firewall=each)
    google.finish()
    google.remove(f"projects/{google.project}/global/httpHealthChecks/{check}")
    assert not [name for name in google.remains() if rule in name or pool in name]


def test_a_filestore_instance_blocks_the_deletion_of_its_network(
    google: FakeGoogle, clients: Clients, client: Client, cluster: str
) -> None:
    (instance,) = google.plant_leftover(cluster, "filestore")
    google.remove(cluster)
    for name in google.remains():
        if "/networks/" not in name and "/instances/" not in name:
            google.remove(name)
    assert "filestore-peer" in refused_deletion(google, client).message
    clients.service_usage.enable_service(
        request={"name": f"projects/{google.project}/services/file.googleapis.com"}
    ).result(timeout=30)
    assert [
        each.name
        for each in clients.filestore.list_instances(
            parent=f"projects/{google.project}/locations/-"
        )
    ] == [instance]
    clients.filestore.delete_instance(name=instance).result(timeout=30)
    client(compute_v1.NetworksClient).delete_unary(
        project=google.project, network="prod"
    )
    google.finish()
    assert google.remains() == []


def test_lists_have_pages_and_filters(google: FakeGoogle, client: Client) -> None:
    root = f"projects/{google.project}"
    for number in range(5):
        google.plant(
            f"{root}/global/firewalls/rule-{number}",
            description="odd" if number % 2 else "even",
        )
    firewalls = client(compute_v1.FirewallsClient)
    pages = list(
        firewalls.list(request={"project": google.project, "max_results": 2}).pages
    )
    assert [len(page.items) for page in pages] == [2, 2, 1]

    def named(text: str) -> list[str]:
        return [
            each.name
            for each in firewalls.list(
                request={"project": google.project, "filter": text}
            )
        ]

    assert named('description = "odd" AND name != "rule-1"') == ["rule-3"]
    assert named("name eq rule-[23]") == ["rule-2", "rule-3"]
    with pytest.raises(exceptions.BadRequest):
        named("name > 3 OR")


def test_lists_over_all_places(google: FakeGoogle, client: Client) -> None:
    root = f"projects/{google.project}"
    google.plant(
        f"{root}/zones/{REGION}-a/disks/pvc-1", labels={"goog-k8s-cluster-name": "prod"}
    )
    google.plant(
        f"{root}/zones/us-east4-b/disks/pvc-2",
        labels={"goog-k8s-cluster-name": "other"},
    )
    request = {
        "project": google.project,
        "filter": 'labels.goog-k8s-cluster-name = "prod"',
    }
    found = {
        scope: [disk.name for disk in part.disks]
        for scope, part in client(compute_v1.DisksClient).aggregated_list(
            request=request
        )
    }
    assert {scope: names for scope, names in found.items() if names} == {
        f"zones/{REGION}-a": ["pvc-1"]
    }


def test_places_and_machines(google: FakeGoogle, client: Client) -> None:
    region = client(compute_v1.RegionsClient).get(project=google.project, region=REGION)
    assert [zone.rpartition("/")[2] for zone in region.zones] == [
        f"{REGION}-{letter}" for letter in "abc"
    ]
    assert {quota.metric: quota.limit for quota in region.quotas}[
        "NVIDIA_L4_GPUS"
    ] == 512
    zones = client(compute_v1.ZonesClient)
    assert zones.get(project=google.project, zone=f"{REGION}-a").status == "UP"
    with pytest.raises(exceptions.NotFound):
        zones.get(project=google.project, zone=f"{REGION}-z")
    machines = client(compute_v1.MachineTypesClient)
    machine = machines.get(
        project=google.project, zone=f"{REGION}-a", machine_type="g2-standard-8"
    )
    assert (machine.guest_cpus, machine.accelerators[0].guest_accelerator_type) == (
        8,
        "nvidia-l4",
    )
    google.capacity.remove_machine(f"{REGION}-a", "g2-standard-8")
    with pytest.raises(exceptions.NotFound):
        machines.get(
            project=google.project, zone=f"{REGION}-a", machine_type="g2-standard-8"
        )


def test_a_client_with_a_key_carries_a_token(
    google: FakeGoogle, client: Callable[..., Any]
) -> None:
    list(
        client(compute_v1.NetworksClient, google.credential).list(
            project=google.project
        )
    )
    assert [(call.name, call.account) for call in google.ledger().calls()] == [
        ("oauth2.token", google.email),
        ("compute.networks.list", google.email),
    ]


@pytest.mark.usefixtures("cluster")
def test_usage_of_quotas_counts_pools(google: FakeGoogle, client: Client) -> None:
    quotas = {
        quota.metric: quota.usage
        for quota in client(compute_v1.RegionsClient)
        .get(project=google.project, region=REGION)
        .quotas
    }
    assert quotas["IN_USE_ADDRESSES"] == 3
