"""The permissions that a credential needs, for creation, operation and deletion.

The custom roles in `deploy/clouds/gcp` contain exactly these. OPERATE has all reads, so
it is always needed; CREATE and DELETE may be taken away between a creation and a
deletion. The keys are the calls, as services and operations of the clients. Permissions
are those that the reference of each API names for the call.
"""

from collections.abc import Mapping

Calls = Mapping[tuple[str, str], tuple[str, ...]]

_POLICY = "resourcemanager.projects.setIamPolicy"

CREATE: Calls = {
    ("compute.networks", "insert"): ("compute.networks.create",),
    ("compute.subnetworks", "insert"): (
        "compute.subnetworks.create",
        "compute.networks.updatePolicy",
    ),
    ("container", "create_cluster"): (
        "container.clusters.create",
        "iam.serviceAccounts.actAs",
    ),
    ("container", "create_node_pool"): (
        "container.clusters.update",
        "iam.serviceAccounts.actAs",
    ),
    ("iam", "create_service_account"): ("iam.serviceAccounts.create",),
    ("resourcemanager.projects", "set_iam_policy"): (_POLICY,),
    ("serviceusage", "enable_service"): ("serviceusage.services.enable",),
}
OPERATE: Calls = {
    ("compute.accelerator_types", "get"): ("compute.acceleratorTypes.get",),
    ("compute.addresses", "list"): ("compute.addresses.list",),
    ("compute.backend_services", "list"): ("compute.backendServices.list",),
    ("compute.disks", "aggregated_list"): ("compute.disks.list",),
    ("compute.disks", "get"): ("compute.disks.get",),
    ("compute.firewalls", "list"): ("compute.firewalls.list",),
    ("compute.forwarding_rules", "list"): ("compute.forwardingRules.list",),
    ("compute.global_operations", "get"): ("compute.globalOperations.get",),
    ("compute.global_operations", "list"): ("compute.globalOperations.list",),
    ("compute.health_checks", "list"): ("compute.healthChecks.list",),
    ("compute.http_health_checks", "list"): ("compute.httpHealthChecks.list",),
    ("compute.instance_groups", "aggregated_list"): ("compute.instanceGroups.list",),
    ("compute.instances", "aggregated_list"): ("compute.instances.list",),
    ("compute.machine_types", "get"): ("compute.machineTypes.get",),
    ("compute.network_endpoint_groups", "aggregated_list"): (
        "compute.networkEndpointGroups.list",
    ),
    ("compute.networks", "get"): ("compute.networks.get",),
    ("compute.projects", "get"): ("compute.projects.get",),
    ("compute.region_health_checks", "list"): ("compute.regionHealthChecks.list",),
    ("compute.region_operations", "get"): ("compute.regionOperations.get",),
    ("compute.region_operations", "list"): ("compute.regionOperations.list",),
    ("compute.regions", "get"): ("compute.regions.get",),
    ("compute.routers", "list"): ("compute.routers.list",),
    ("compute.routes", "list"): ("compute.routes.list",),
    ("compute.subnetworks", "get"): ("compute.subnetworks.get",),
    ("compute.subnetworks", "list"): ("compute.subnetworks.list",),
    ("compute.target_pools", "list"): ("compute.targetPools.list",),
    ("compute.zone_operations", "get"): ("compute.zoneOperations.get",),
    ("container", "cancel_operation"): ("container.clusters.update",),
    ("container", "get_cluster"): ("container.clusters.get",),
    ("container", "get_node_pool"): ("container.clusters.get",),
    ("container", "get_operation"): ("container.operations.get",),
    ("container", "get_server_config"): ("container.clusters.list",),
    ("container", "list_operations"): ("container.operations.list",),
    ("container", "set_maintenance_policy"): ("container.clusters.update",),
    ("container", "set_node_pool_autoscaling"): ("container.clusters.update",),
    ("container", "set_node_pool_size"): ("container.clusters.update",),
    ("container", "update_cluster"): ("container.clusters.update",),
    ("container", "update_node_pool"): ("container.clusters.update",),
    ("filestore", "get_instance"): ("file.instances.get",),
    ("filestore", "list_instances"): ("file.instances.list",),
    ("iam", "get_service_account"): ("iam.serviceAccounts.get",),
    ("resourcemanager.projects", "get_iam_policy"): (
        "resourcemanager.projects.getIamPolicy",
    ),
    ("serviceusage", "get_service"): ("serviceusage.services.get",),
}
DELETE: Calls = {
    ("compute.addresses", "delete"): ("compute.addresses.delete",),
    ("compute.backend_services", "delete"): ("compute.backendServices.delete",),
    ("compute.disks", "delete"): ("compute.disks.delete",),
    ("compute.firewalls", "delete"): (
        "compute.firewalls.delete",
        "compute.networks.updatePolicy",
    ),
    ("compute.forwarding_rules", "delete"): ("compute.forwardingRules.delete",),
    ("compute.health_checks", "delete"): ("compute.healthChecks.delete",),
    ("compute.http_health_checks", "delete"): ("compute.httpHealthChecks.delete",),
    ("compute.instance_groups", "delete"): ("compute.instanceGroups.delete",),
    ("compute.network_endpoint_groups", "delete"): (
        "compute.networkEndpointGroups.delete",
    ),
    ("compute.networks", "delete"): ("compute.networks.delete",),
    ("compute.region_health_checks", "delete"): ("compute.regionHealthChecks.delete",),
    ("compute.routes", "delete"): (
        "compute.routes.delete",
        "compute.networks.updatePolicy",
    ),
    ("compute.subnetworks", "delete"): (
        "compute.subnetworks.delete",
        "compute.networks.updatePolicy",
    ),
    ("compute.target_pools", "delete"): ("compute.targetPools.delete",),
    ("container", "delete_cluster"): ("container.clusters.delete",),
    ("container", "delete_node_pool"): ("container.clusters.update",),
    ("filestore", "delete_instance"): ("file.instances.delete",),
    ("iam", "delete_service_account"): ("iam.serviceAccounts.delete",),
    ("resourcemanager.projects", "set_iam_policy"): (_POLICY,),
}
CALLS: Mapping[str, Calls] = {"create": CREATE, "operate": OPERATE, "delete": DELETE}
"""The calls by the name of their custom role."""


def permissions_of(name: str) -> tuple[str, ...]:
    """Return the permissions of a custom role, sorted."""
    return tuple(sorted({each for needed in CALLS[name].values() for each in needed}))
