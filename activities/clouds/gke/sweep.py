"""Delete the leftovers of a GKE cluster, and objects that its inventory has lost.

`audit` finds them and provides the evidence.
"""

import time
from collections.abc import Mapping
from typing import Any

from activities.clouds.gke import search
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.audit import GkeAudit
from activities.clouds.gke.clients import LEGACY_HEALTH_CHECKS
from activities.clouds.gke.failures import GcpErrorInfo, failure
from activities.clouds.gke.handlers.accounts import without_members, write_policy
from api_types.errors import Busy, Dependency
from api_types.messages.clouds import CloudAccount, Leftover

_SERVICES: Mapping[str, tuple[str, str]] = {
    search.FORWARDING_RULE: ("compute.forwarding_rules", "forwarding_rule"),
    search.TARGET_POOL: ("compute.target_pools", "target_pool"),
    search.BACKEND_SERVICE: ("compute.backend_services", "backend_service"),
    search.HEALTH_CHECK: ("compute.health_checks", "health_check"),
    search.REGION_HEALTH_CHECK: ("compute.region_health_checks", "health_check"),
    search.LEGACY_HEALTH_CHECK: (LEGACY_HEALTH_CHECKS, "http_health_check"),
    search.FIREWALL: ("compute.firewalls", "firewall"),
    search.ROUTE: ("compute.routes", "route"),
    search.ENDPOINT_GROUP: (
        "compute.network_endpoint_groups",
        "network_endpoint_group",
    ),
    search.INSTANCE_GROUP: ("compute.instance_groups", "instance_group"),
    search.ADDRESS: ("compute.addresses", "address"),
    search.DISK: ("compute.disks", "disk"),
    search.SUBNETWORK: ("compute.subnetworks", "subnetwork"),
    search.NETWORK: ("compute.networks", "network"),
}
# Kinds with long-running operations: their service and their calls.
_OWN_OPERATIONS: Mapping[str, tuple[str, str, str]] = {
    search.CLUSTER_KIND: ("container", "get_cluster", "delete_cluster"),
    search.FILESTORE: ("filestore", "get_instance", "delete_instance"),
}
_ENDING = ("DELETING", "STOPPING")
_OPERATIONS = {
    "regions": "compute.region_operations",
    "zones": "compute.zone_operations",
    "global": "compute.global_operations",
}
_DONE = "DONE"
# The next deletion may depend on this one, so the call waits for its end. It usually
# takes seconds.
_LOOKS_MAX = 30
LOOK_SECONDS = 2.0


class Sweep:
    """Deletes leftovers of an account's cluster. `emptied` is passed to `GkeAudit`."""

    def __init__(
        self,
        api: GoogleApi,
        account: CloudAccount,
        look_seconds: float,
        *,
        emptied: bool,
    ) -> None:
        self._api = api
        self._account = account
        self._emptied = emptied
        self._project = account.project
        self._look_seconds = look_seconds

    def delete(self, leftover: Leftover) -> None:
        """Delete one leftover.

        Raises Dependency while it is in use or being deleted.
        """
        if leftover.kind in (search.POLICY_MEMBER, search.ROLE_BINDING):
            role, _, member = leftover.id.partition(" ")
            write_policy(
                self._api,
                f"projects/{self._project}",
                lambda policy: without_members(
                    policy, role, lambda each: each == member
                ),
            )
        elif leftover.kind == search.SERVICE_ACCOUNT:
            self._api.delete(
                "iam",
                "delete_service_account",
                {"name": f"projects/{self._project}/serviceAccounts/{leftover.id}"},
            )
        elif leftover.kind in _OWN_OPERATIONS:
            self._delete_slowly(leftover)
        elif leftover.kind in _SERVICES:
            self._delete_of_compute(leftover)

    def _delete_of_compute(self, leftover: Leftover) -> None:
        if leftover.kind == search.FIREWALL:
            self._check_last(leftover)
        service, argument = _SERVICES[leftover.kind]
        place = _place(leftover.id)
        request = {**place, argument: leftover.id.rpartition("/")[2]}
        users = self._users(service, request) if leftover.kind == search.DISK else []
        if users:
            raise Dependency(f"disk {leftover.id} is attached to {', '.join(users)}")
        operation = self._api.delete(service, "delete_unary", request)
        if operation is not None:
            self._wait(place, operation, f"delete {leftover.kind} {leftover.id}")

    def _check_last(self, firewall: Leftover) -> None:
        """Raise Dependency if other leftovers are found only through a firewall rule."""
        for each in GkeAudit(
            self._api, self._account, emptied=self._emptied
        ).load_balancers():
            if each.ours:
                raise Dependency(
                    f"firewall rule {firewall.id} identifies load balancers of the cluster, and "
                    f"{each.kind} {each.id} still exists"
                )

    def _users(self, service: str, request: Mapping[str, str]) -> list[str]:
        disk = self._api.find(service, "get", request)
        return list(disk.users) if disk is not None else []

    def _wait(self, place: Mapping[str, str], operation: Any, doing: str) -> None:
        scope = next(
            (f"{each}s" for each in ("region", "zone") if each in place), "global"
        )
        for _ in range(_LOOKS_MAX):
            if operation.status.name == _DONE:
                break
            time.sleep(self._look_seconds)
            operation = self._api.read(
                _OPERATIONS[scope], "get", {**place, "operation": operation.name}
            )
        else:
            raise Dependency(f"{doing}: operation {operation.name} still runs")
        if operation.error.errors:
            first = operation.error.errors[0]
            raise failure(
                GcpErrorInfo("", f"{first.code}: {first.message}"), doing, deleting=True
            )

    def _delete_slowly(self, leftover: Leftover) -> None:
        service, get, delete = _OWN_OPERATIONS[leftover.kind]
        request = {"name": leftover.id}
        found = self._api.find(service, get, request)
        if found is None:
            return
        state = found.status if leftover.kind == search.CLUSTER_KIND else found.state
        if state.name not in _ENDING:
            try:
                self._api.delete(service, delete, request)
            except Busy as error:
                raise Dependency(error.message) from None
        # The deletion takes minutes, and the network stays in use until its end.
        if self._api.find(service, get, request) is not None:
            raise Dependency(f"{leftover.kind} {leftover.id} is being deleted")


def _place(path: str) -> dict[str, str]:
    """Return project and region or zone from a path.

    Such a path is `projects/p/regions/r/addresses/a`.
    """
    parts = path.split("/")
    places = {"regions": "region", "zones": "zone"}
    found = {"project": parts[1]}
    if parts[2] in places:
        found[places[parts[2]]] = parts[3]
    return found
