"""Delete what a GKE cluster made and left, and what of it an inventory has lost (spec/provisioning.md 9.3).

What is deleted was found by `audit`, which has the evidence.
"""

import time
from collections.abc import Mapping
from typing import Any

from activities.clouds.gke import audit
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.clients import LEGACY_HEALTH_CHECKS
from activities.clouds.gke.failures import Signal, failure
from activities.clouds.gke.handlers.accounts import without_members, write_policy
from api_types.errors import Busy, Dependency
from api_types.messages.clouds import CloudAccount, Leftover

_SERVICES: Mapping[str, tuple[str, str]] = {
    audit.FORWARDING_RULE: ("compute.forwarding_rules", "forwarding_rule"),
    audit.TARGET_POOL: ("compute.target_pools", "target_pool"),
    audit.BACKEND_SERVICE: ("compute.backend_services", "backend_service"),
    audit.HEALTH_CHECK: ("compute.health_checks", "health_check"),
    audit.REGION_HEALTH_CHECK: ("compute.region_health_checks", "health_check"),
    audit.LEGACY_HEALTH_CHECK: (LEGACY_HEALTH_CHECKS, "http_health_check"),
    audit.FIREWALL: ("compute.firewalls", "firewall"),
    audit.ROUTE: ("compute.routes", "route"),
    audit.ENDPOINT_GROUP: ("compute.network_endpoint_groups", "network_endpoint_group"),
    audit.ADDRESS: ("compute.addresses", "address"),
    audit.DISK: ("compute.disks", "disk"),
    audit.SUBNETWORK: ("compute.subnetworks", "subnetwork"),
    audit.NETWORK: ("compute.networks", "network"),
}
# What has operations of its own: its service, and its calls.
_OWN_OPERATIONS: Mapping[str, tuple[str, str, str]] = {
    audit.CLUSTER_KIND: ("container", "get_cluster", "delete_cluster"),
    audit.FILESTORE: ("filestore", "get_instance", "delete_instance"),
}
_ENDING = ("DELETING", "STOPPING")
_OPERATIONS = {"regions": "compute.region_operations", "zones": "compute.zone_operations", "global": "compute.global_operations"}
_DONE = "DONE"
# What is deleted next may use what is deleted now, so the end is awaited; it comes within seconds.
_LOOKS_MAX = 30
LOOK_SECONDS = 2.0


class Sweep:
    """Deletes leftovers of the cluster of an account. `emptied` is that of `Audit`."""

    def __init__(self, api: GoogleApi, account: CloudAccount, look_seconds: float, *, emptied: bool) -> None:
        self._api = api
        self._account = account
        self._emptied = emptied
        self._project = account.project
        self._look_seconds = look_seconds

    def delete(self, leftover: Leftover) -> None:
        """Delete one. Raises Dependency while something uses it, or while its deletion goes on."""
        if leftover.kind in (audit.POLICY_MEMBER, audit.ROLE_BINDING):
            role, _, member = leftover.id.partition(" ")
            write_policy(self._api, f"projects/{self._project}", lambda policy: without_members(policy, role, lambda each: each == member))
        elif leftover.kind == audit.SERVICE_ACCOUNT:
            self._api.delete("iam", "delete_service_account", {"name": f"projects/{self._project}/serviceAccounts/{leftover.id}"})
        elif leftover.kind in _OWN_OPERATIONS:
            self._delete_slowly(leftover)
        elif leftover.kind in _SERVICES:
            self._delete_of_compute(leftover)

    def _delete_of_compute(self, leftover: Leftover) -> None:
        if leftover.kind == audit.FIREWALL:
            self._check_last(leftover)
        service, argument = _SERVICES[leftover.kind]
        place = _place(leftover.id)
        request = {**place, argument: leftover.id.rpartition("/")[2]}
        if leftover.kind == audit.DISK and (users := self._users(service, request)):
            raise Dependency(f"disk {leftover.id} is attached to {', '.join(users)}")
        operation = self._api.delete(service, "delete_unary", request)
        if operation is not None:
            self._wait(place, operation, f"delete {leftover.kind} {leftover.id}")

    def _check_last(self, firewall: Leftover) -> None:
        """Check that nothing is left which only a firewall rule says is of this cluster. Raises Dependency."""
        for each in audit.Audit(self._api, self._account, emptied=self._emptied).load_balancers():
            if each.ours:
                raise Dependency(f"firewall rule {firewall.id} says whose load balancers are, and {each.kind} {each.id} is still there")

    def _users(self, service: str, request: Mapping[str, str]) -> list[str]:
        disk = self._api.find(service, "get", request)
        return list(disk.users) if disk is not None else []

    def _wait(self, place: Mapping[str, str], operation: Any, doing: str) -> None:
        scope = next((f"{each}s" for each in ("region", "zone") if each in place), "global")
        for _ in range(_LOOKS_MAX):
            if operation.status.name == _DONE:
                break
            time.sleep(self._look_seconds)
            operation = self._api.read(_OPERATIONS[scope], "get", {**place, "operation": operation.name})
        else:
            raise Dependency(f"{doing}: operation {operation.name} still runs")
        if operation.error.errors:
            first = operation.error.errors[0]
            raise failure(Signal("", f"{first.code}: {first.message}"), doing, deleting=True)

    def _delete_slowly(self, leftover: Leftover) -> None:
        service, get, delete = _OWN_OPERATIONS[leftover.kind]
        request = {"name": leftover.id}
        found = self._api.find(service, get, request)
        if found is None:
            return
        if (found.status if leftover.kind == audit.CLUSTER_KIND else found.state).name not in _ENDING:
            try:
                self._api.delete(service, delete, request)
            except Busy as error:
                raise Dependency(error.message) from None
        # That takes minutes, and its network stays in use until then.
        if self._api.find(service, get, request) is not None:
            raise Dependency(f"{leftover.kind} {leftover.id} is being deleted")


def _place(path: str) -> dict[str, str]:
    """Give project and region or zone of a name such as `projects/p/regions/r/addresses/a`."""
    parts = path.split("/")
    places = {"regions": "region", "zones": "zone"}
    return {"project": parts[1], **({places[parts[2]]: parts[3]} if parts[2] in places else {})}
