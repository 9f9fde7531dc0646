"""The permissions that each call needs, and their refusals, for limited accounts.

An account without a limit has all permissions. The table follows the references of the
APIs; the texts are those that the services answer.
"""

import re
from collections.abc import Mapping

from fakes.gcp.calls.errors import CloudError
from fakes.gcp.services.world import World

_UPDATE = ("container.clusters.update",)
_NETWORK = "compute.networks.updatePolicy"
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "container.create_cluster": (
        "container.clusters.create",
        "iam.serviceAccounts.actAs",
    ),
    "container.get_cluster": ("container.clusters.get",),
    "container.list_clusters": ("container.clusters.list",),
    "container.delete_cluster": ("container.clusters.delete",),
    "container.get_server_config": ("container.clusters.list",),
    "container.create_node_pool": (*_UPDATE, "iam.serviceAccounts.actAs"),
    "container.get_node_pool": ("container.clusters.get",),
    "container.list_node_pools": ("container.clusters.get",),
    "container.get_operation": ("container.operations.get",),
    "container.list_operations": ("container.operations.list",),
    "serviceusage.get_service": ("serviceusage.services.get",),
    "serviceusage.enable_service": ("serviceusage.services.enable",),
    "iam.get_service_account": ("iam.serviceAccounts.get",),
    "iam.create_service_account": ("iam.serviceAccounts.create",),
    "iam.delete_service_account": ("iam.serviceAccounts.delete",),
    "resourcemanager.projects.get_iam_policy": (
        "resourcemanager.projects.getIamPolicy",
    ),
    "resourcemanager.projects.set_iam_policy": (
        "resourcemanager.projects.setIamPolicy",
    ),
    "filestore.list_instances": ("file.instances.list",),
    "filestore.get_instance": ("file.instances.get",),
    "filestore.delete_instance": ("file.instances.delete",),
    "compute.subnetworks.insert": ("compute.subnetworks.create", _NETWORK),
    "compute.subnetworks.delete": ("compute.subnetworks.delete", _NETWORK),
    "compute.firewalls.delete": ("compute.firewalls.delete", _NETWORK),
    "compute.routes.delete": ("compute.routes.delete", _NETWORK),
}
# Answers about operations, and the check of permissions itself.
_FREE = frozenset(
    {"longrunning.get_operation", "resourcemanager.projects.test_iam_permissions"}
)
_VERBS = {"insert": "create", "aggregated_list": "list", "patch": "update"}


def needed(call: str, target: str) -> tuple[str, ...]:
    """Return the permissions of a call, such as `compute.networks.insert`."""
    if call in _FREE:
        return ()
    if call in _NEEDED:
        return _NEEDED[call]
    service, _, method = call.rpartition(".")
    if service == "container":
        return _UPDATE
    if not service.startswith("compute."):
        raise KeyError(f"the permission of {call} is not known")
    name = service.removeprefix("compute.")
    collection = name
    if name == "operations":
        scopes = ("region", "zone")
        scope = next((each for each in scopes if f"/{each}s/" in target), "global")
        collection = f"{scope}_operations"
    elif name == "health_checks" and "/regions/" in target:
        collection = "region_health_checks"
    return (f"compute.{_camel(collection)}.{_VERBS.get(method, method)}",)


def check(world: World, call: str, target: str, account: str) -> None:
    """Refuse a call for which its account lacks a permission."""
    held = world.limits.get(account)
    if held is None:
        return
    for permission in needed(call, target):
        if permission not in held:
            raise _refusal(call, permission, target)


def _refusal(call: str, permission: str, target: str) -> CloudError:
    if call.startswith("compute."):
        text = f"Required '{permission}' permission for '{target}'"
        return CloudError("PERMISSION_DENIED", text, http_reason="forbidden")
    if call.startswith("container."):
        text = f'Required "{permission}" permission(s) for "{target}".'
        return CloudError("PERMISSION_DENIED", text)
    text = f"Permission '{permission}' denied on resource '{target}' (or it may not exist)."
    return CloudError(
        "PERMISSION_DENIED",
        text,
        reason="IAM_PERMISSION_DENIED",
        metadata={"permission": permission},
    )


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
