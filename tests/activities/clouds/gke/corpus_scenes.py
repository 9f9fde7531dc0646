"""Scenes in which the fake Google Cloud gives answers of the corpus on its own.

A scene returns the text of the answer, or for a behaviour its verdict.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from google.api_core import exceptions as api
from google.iam.v1 import iam_policy_pb2

from activities.clouds.gke.failures import GcpErrorInfo, failure, failure_of
from activities.clouds.lifecycle.handler import State
from api_types.errors import ModelplaneError
from fakes.gcp.calls.faults import (
    EtagRace,
    Invisible,
    Kind,
    OperationFails,
    TooManyRequests,
)
from fakes.gcp.services.gke.checks import node_prefix
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.corpus import GONE, HEALTHY, verdict_of
from tests.activities.clouds.gke.cloud import REGION, Cloud, pool_of, run

ZONE, MACHINE, GPUS = f"{REGION}-a", "g2-standard-8", "NVIDIA_L4_GPUS"
BROKEN_UPGRADE = (
    "Failed to start node upgrade: Desired node version (1.7.0) cannot be greater than "
    "current master version (1.6.6)"
)


def client(cloud: Cloud, service: str = "container") -> Any:
    return cloud.provider._clients.client(service)


def refusal(call: Callable[[], object]) -> api.GoogleAPICallError:
    with pytest.raises(api.GoogleAPICallError) as caught:
        call()
    return caught.value


def refused(cloud: Cloud, key: str, **change: Any) -> str:
    """Return the refusal of the call that creates an object, with other fields."""
    call = cloud.object(key).calls[0]
    request: dict[str, Any] = {**call.parameters}
    request.pop("request_id", None)
    for name, value in change.items():
        request[name] = {**request[name], **value}
    create = getattr(client(cloud, call.service), call.operation)
    return str(refusal(lambda: create(request=request)).message)


def error_of(cloud: Cloud, key: str, **how: Any) -> ModelplaneError:
    with pytest.raises(ModelplaneError) as caught:
        run(cloud.ensure(cloud.object(key), **how))
    return caught.value


def before(cloud: Cloud, key: str) -> Cloud:
    """Create the objects that come before this one."""
    for each in cloud.objects:
        if each.key == key:
            break
        run(cloud.ensure(each))
    return cloud


def whole(cloud: Cloud) -> Cloud:
    run(cloud.create_all())
    return cloud


# Calls


def two_quotas(cloud: Cloud) -> str:
    before(cloud, "pool/gpu").google.capacity.set_limit(GPUS, 0, REGION)
    cloud.google.capacity.set_limit("IN_USE_ADDRESSES", 0, REGION)
    return refused(cloud, "pool/gpu")


def quota_of_gpus(cloud: Cloud) -> str:
    before(cloud, "pool/gpu").google.capacity.set_limit(GPUS, 0, REGION)
    return refused(cloud, "pool/gpu")


def incompatible_operation(cloud: Cloud) -> str:
    whole(cloud).google.begin_operation(cloud.cluster_name)
    name = cloud.pool_name()
    return str(refusal(lambda: client(cloud).delete_node_pool(name=name)).message)


def five_operations(cloud: Cloud) -> str:
    pool = before(cloud, "pool/gpu").object("pool/gpu").calls[0].parameters["node_pool"]
    assert isinstance(pool, Mapping)
    for number in range(5):
        request = {
            "parent": cloud.cluster_name,
            "node_pool": {**pool, "name": f"p{number}"},
        }
        client(cloud).create_node_pool(request=request)
    return refused(cloud, "pool/gpu")


def network_not_ready(cloud: Cloud) -> str:
    network = cloud.object("net/vpc").calls[0].parameters
    request = {name: network[name] for name in ("project", "network_resource")}
    client(cloud, "compute.networks").insert_unary(request=request)
    return refused(cloud, "net/subnet")


def network_not_found(cloud: Cloud) -> str:
    return refused(cloud, "net/subnet")


def throttled(cloud: Cloud) -> str:
    cloud.google.fault(TooManyRequests(call="container.create_cluster"))
    return refused(before(cloud, "cluster"), "cluster")


def new_account_in_policy(cloud: Cloud) -> str:
    hidden_account(cloud)
    policy: Any = cloud.object("iam/binding").calls[0].parameters["policy"]
    request = iam_policy_pb2.SetIamPolicyRequest(
        resource=f"projects/{cloud.account.project}", policy=policy
    )
    projects = client(cloud, "resourcemanager.projects")
    return str(refusal(lambda: projects.set_iam_policy(request=request)).message)


def new_account_of_nodes(cloud: Cloud) -> str:
    run(before(cloud, "iam/sa").ensure(cloud.object("net/subnet")))
    hidden_account(cloud)
    return refused(cloud, "cluster")


def hidden_account(cloud: Cloud) -> None:
    cloud.google.fault(Invisible(call="iam.create_service_account", reads=9))
    account = cloud.object("iam/sa").calls[0].parameters
    client(cloud, "iam").create_service_account(request=account)


def policy_race(cloud: Cloud) -> str:
    cloud.google.fault(EtagRace(call="resourcemanager.projects.set_iam_policy"))
    projects = client(cloud, "resourcemanager.projects")
    project = f"projects/{cloud.account.project}"
    policy = projects.get_iam_policy(request={"resource": project})
    request = iam_policy_pb2.SetIamPolicyRequest(resource=project, policy=policy)
    return str(refusal(lambda: projects.set_iam_policy(request=request)).message)


def unknown_version(cloud: Cloud) -> str:
    version = {"initial_cluster_version": "1.16.13-gke.401"}
    return refused(before(cloud, "cluster"), "cluster", cluster=version)


def subnet_of_another_network(cloud: Cloud) -> str:
    return refused(before(cloud, "cluster"), "cluster", cluster={"network": "default"})


def nodes_above_the_master(cloud: Cloud) -> str:
    request = {"name": whole(cloud).pool_name(), "node_version": "1.36"}
    return str(refusal(lambda: client(cloud).update_node_pool(request=request)).message)


def gpus_without_a_machine_type(cloud: Cloud) -> str:
    gpus = [{"accelerator_type": "nvidia-l4", "accelerator_count": 1}]
    pool = {"config": {"accelerators": gpus}}
    return refused(before(cloud, "pool/gpu"), "pool/gpu", node_pool=pool)


def no_auto_upgrade(cloud: Cloud) -> str:
    pool = {"management": {"auto_upgrade": False, "auto_repair": True}}
    return refused(before(cloud, "pool/gpu"), "pool/gpu", node_pool=pool)


# Operations


def ended(cloud: Cloud, operation: Any) -> str:
    """Return the error of an operation of GKE."""
    cloud.google.finish()
    name = f"projects/{cloud.account.project}/locations/{REGION}/operations"
    done = client(cloud).get_operation(name=f"{name}/{operation.name}")
    return str(done.error.message)


def pool_without_machines(cloud: Cloud) -> str:
    before(cloud, "pool/gpu").google.capacity.set_stock(ZONE, MACHINE, 0)
    request = cloud.object("pool/gpu").calls[0].parameters
    return ended(cloud, client(cloud).create_node_pool(request=request))


def status_message_only(cloud: Cloud) -> str:
    pool_of(whole(cloud)).upgrade_settings.max_surge = 1
    fails = OperationFails(
        call="container.update_node_pool", message=BROKEN_UPGRADE, only_message=True
    )
    cloud.google.fault(fails)
    return error_of(cloud, "pool/gpu").message.partition(": ")[2]


def network_in_use(cloud: Cloud) -> str:
    network = before(cloud, "api/file").object("net/vpc").name
    run(cloud.ensure(cloud.object("net/vpc")))
    run(cloud.ensure(cloud.object("net/subnet")))
    place = {"project": cloud.account.project}
    networks = client(cloud, "compute.networks")
    operation = networks.delete_unary(request={**place, "network": network})
    cloud.google.finish()
    operations = client(cloud, "compute.global_operations")
    done = operations.get(request={**place, "operation": operation.name})
    return str(done.error.errors[0].message)


# Behaviours


def pool_gets_machines_later(cloud: Cloud) -> str:
    before(cloud, "pool/gpu").google.capacity.set_stock(ZONE, MACHINE, 0)
    error = error_of(cloud, "pool/gpu", rebuilds=0)
    cloud.google.capacity.set_stock(ZONE, MACHINE, None)
    assert cloud.looked("pool/gpu").state is State.READY
    return verdict_of(error)


def one_zone_without_machines(cloud: Cloud) -> str:
    cloud.pools = [a_pool(zones=[ZONE, f"{REGION}-b"])]
    before(cloud, "pool/gpu").google.capacity.set_stock(f"{REGION}-b", MACHINE, 0)
    error = error_of(cloud, "pool/gpu")
    assert pool_of(cloud).status.name == "RUNNING_WITH_ERROR"
    return verdict_of(error)


def pools_at_once(cloud: Cloud) -> str:
    cloud.pools = [a_pool("one"), a_pool("two")]
    before(cloud, "pool/one")
    client(cloud).create_node_pool(request=cloud.object("pool/one").calls[0].parameters)
    seen = cloud.looked("pool/two").state
    client(cloud).create_node_pool(request=cloud.object("pool/two").calls[0].parameters)
    return HEALTHY if seen is State.ABSENT else seen


def network_in_use_ends_in_the_operation(cloud: Cloud) -> str:
    whole(cloud).google.ledger().clear()
    with pytest.raises(ModelplaneError) as caught:
        run(cloud.delete(cloud.object("net/vpc"), attempts=1))
    assert cloud.writes() == ["compute.networks.delete OK"]
    return verdict_of(caught.value)


def upgrade_needs_a_spare_machine(cloud: Cloud) -> str:
    cloud.google.capacity.set_stock(ZONE, MACHINE, 1)
    settings = pool_of(whole(cloud)).upgrade_settings
    request = {"name": cloud.pool_name(), "node_version": "-"}
    assert ended(cloud, client(cloud).update_node_pool(request=request)) == ""
    settings = pool_of(cloud).upgrade_settings
    settings.max_surge, settings.max_unavailable = 1, 0
    text = ended(cloud, client(cloud).update_node_pool(request=request))
    return verdict_of(failure(GcpErrorInfo("RESOURCE_EXHAUSTED", text), "upgrade"))


def narrow_maintenance_window(cloud: Cloud) -> str:
    times = {"start_time": "2024-01-06T03:00:00Z", "end_time": "2024-01-06T07:00:00Z"}
    window = {"window": times, "recurrence": "FREQ=WEEKLY;BYDAY=SA"}
    request = {
        "name": whole(cloud).cluster_name,
        "maintenance_policy": {"window": {"recurring_window": window}},
    }
    error = refusal(lambda: client(cloud).set_maintenance_policy(request=request))
    return verdict_of(failure_of(error, "set the window"))


def new_account_denied(cloud: Cloud) -> str:
    cloud.google.fault(Invisible(call="iam.create_service_account", reads=1))
    return verdict_of(error_of(cloud, "iam/sa", attempts=1))


def swept(kind: Kind) -> Callable[[Cloud], str]:
    """Return the scene of a leftover that stays after the deletion of its cluster."""

    def scene(cloud: Cloud) -> str:
        left = whole(cloud).google.plant_leftover(cloud.cluster_name, kind)
        run(cloud.delete(cloud.object("pool/gpu")))
        run(cloud.delete(cloud.object("cluster")))
        assert set(left) <= set(cloud.google.objects())
        for _ in left:
            cloud.sweep()
        return GONE if not set(left) & set(cloud.google.objects()) else "left"

    return scene


def short_names_of_nodes(cloud: Cloud) -> str:
    del cloud
    prefix = node_prefix("fontbakery-dashboard", "checker-sprinter-pool")
    return HEALTHY if prefix == "gke-fontbakery-dashb-checker-sprinter" else prefix


SCENES: Mapping[str, Callable[[Cloud], str]] = {
    "two_quotas": two_quotas,
    "quota_of_gpus": quota_of_gpus,
    "incompatible_operation": incompatible_operation,
    "five_operations": five_operations,
    "network_not_ready": network_not_ready,
    "network_not_found": network_not_found,
    "throttled": throttled,
    "new_account_in_policy": new_account_in_policy,
    "new_account_of_nodes": new_account_of_nodes,
    "policy_race": policy_race,
    "unknown_version": unknown_version,
    "subnet_of_another_network": subnet_of_another_network,
    "nodes_above_the_master": nodes_above_the_master,
    "gpus_without_a_machine_type": gpus_without_a_machine_type,
    "no_auto_upgrade": no_auto_upgrade,
    "pool_without_machines": pool_without_machines,
    "status_message_only": status_message_only,
    "network_in_use": network_in_use,
    "pool_gets_machines_later": pool_gets_machines_later,
    "one_zone_without_machines": one_zone_without_machines,
    "pools_at_once": pools_at_once,
    "network_in_use_ends_in_the_operation": network_in_use_ends_in_the_operation,
    "upgrade_needs_a_spare_machine": upgrade_needs_a_spare_machine,
    "narrow_maintenance_window": narrow_maintenance_window,
    "new_account_denied": new_account_denied,
    "target_pool_balancer": swept("forwarding_rule"),
    "backend_service_balancer": swept("backend_service_balancer"),
    "endpoint_group": swept("neg"),
    "short_names_of_nodes": short_names_of_nodes,
}
