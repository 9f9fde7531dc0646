"""The handler of the GKE cluster with its system pool."""

from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import parameters
from activities.clouds.gke.handlers.maintenance import is_other_policy, merged
from activities.clouds.gke.handlers.operations import GkeOperations, words
from activities.clouds.gke.handlers.states import health_of, is_ours, mark, trouble
from activities.clouds.gke.versions import is_below, next_step
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from api_types.errors import Busy, CloudObjectBroken, ModelplaneError, ServerError

WANTED_VERSION = "wantedVersion"
"""Fact: the version in the manifest.

Pools are upgraded to it after the control plane.
"""

NODE_ACCOUNT = "nodeAccount"
"""Fact: the service account of the nodes, which cannot change."""

_VERSION = "version"
_MAINTENANCE = "maintenance window"
_FILESTORE = "Filestore driver"
_SYSTEM_POOL = "system pool"
_SYSTEM_VERSION = "version of the system pool"
_STATUS = "status"
_SYSTEM_STATUS = "status of the system pool"
# In these states system pods have no nodes, so no other part of the cluster works.
_NOT_USABLE = ("ERROR", "RUNNING_WITH_ERROR")
_USABLE = ("RUNNING", "RECONCILING", "DEGRADED")


class GkeClusterHandler:
    """A regional cluster. Its desired state is the parameters of `create_cluster`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operations = GkeOperations(api)
        self._deleting = False

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the cluster by name, and its running operations."""
        given = parameters(wanted)
        location, cluster = given["parent"], given["cluster"]
        verb = "delete" if self._deleting else "create or change"
        doing = f"{verb} cluster {cluster['name']}"
        running, failed = self._operations.own(location, doing, deleting=self._deleting)
        found = self._api.find("container", "get_cluster", {"name": _path(given)})
        if found is None:
            return self._absent(wanted, given, running, failed)
        observed = dict(found.resource_labels)
        if (
            not is_ours(observed, cluster["resource_labels"])
            and found.description != cluster["description"]
        ):
            return CloudObservation(State.FOREIGN, found.name, reason=mark(observed))
        return self._present(wanted, found, running, failed)

    def _absent(
        self,
        wanted: ObjectWork,
        given: dict[str, Any],
        running: Any | None,
        failed: ModelplaneError | None,
    ) -> CloudObservation:
        if failed is not None and not self._deleting:
            return _failed(wanted, failed)
        others = (
            [running]
            if running is not None
            else self._operations.running(given["parent"], given["cluster"]["name"])
        )
        for each in others:
            state = (
                State.DELETING
                if each.operation_type.name == "DELETE_CLUSTER"
                else State.PENDING
            )
            return CloudObservation(state, reason=words(each))
        return CloudObservation(State.ABSENT, uncertain=True)

    def _present(
        self,
        wanted: ObjectWork,
        found: Any,
        running: Any | None,
        failed: ModelplaneError | None,
    ) -> CloudObservation:
        status, name = found.status.name, found.name
        if status == "STOPPING":
            return CloudObservation(State.DELETING, name, reason=f"status {status}")
        if status == "ERROR":
            problem = failed or trouble(f"cluster {name}", found)
            return CloudObservation(
                State.BROKEN, name, reason=problem.message, cause=_cause(problem)
            )
        if failed is not None:
            raise failed
        if running is not None or status not in _USABLE:
            return CloudObservation(
                State.PENDING,
                name,
                reason=words(running) if running is not None else f"status {status}",
            )
        facts = {
            "id": name,
            "version": found.current_master_version,
            WANTED_VERSION: _cluster(wanted)["initial_cluster_version"],
            NODE_ACCOUNT: _node_account(_cluster(wanted), found),
        }
        changes = _changes(_cluster(wanted), found)
        health = health_of(f"cluster {name}", found)
        if status == "RECONCILING" and (changes or not wanted.known_id):
            return CloudObservation(
                State.PENDING, name, facts, reason=f"status {status}"
            )
        if changes:
            return CloudObservation(
                State.DIFFERS,
                name,
                facts,
                reason=_difference(found),
                changes=changes,
                health=health,
            )
        return CloudObservation(State.READY, name, facts, health=health)

    def create(self, wanted: ObjectWork) -> None:
        """Start the creation. The name is unique in the region."""
        self._operations.begin(
            self._api.create("container", "create_cluster", parameters(wanted))
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the first of the changes. GKE accepts one at a time.

        Raises the reported error of a degraded cluster.
        """
        given = parameters(wanted)
        name, change = _path(given), found.changes[0]
        observed = self._api.read("container", "get_cluster", {"name": name})
        if change == _STATUS:
            raise trouble(f"cluster {found.id}", observed)
        if change == _SYSTEM_STATUS:
            pool = self._api.read(
                "container",
                "get_node_pool",
                {"name": f"{name}/nodePools/{_system_pool(given['cluster'])['name']}"},
            )
            raise trouble(f"pool {pool.name}", pool)
        if change == _SYSTEM_POOL:
            self._begin(
                "create_node_pool",
                {"parent": name, "node_pool": _system_pool(given["cluster"])},
            )
        elif change == _SYSTEM_VERSION:
            pool = f"{name}/nodePools/{_system_pool(given['cluster'])['name']}"
            self._begin(
                "update_node_pool",
                {"name": pool, "node_version": observed.current_master_version},
            )
        elif change == _MAINTENANCE:
            self._begin(
                "set_maintenance_policy",
                {
                    "name": name,
                    "maintenance_policy": merged(
                        given["cluster"]["maintenance_policy"], observed
                    ),
                },
            )
        elif change == _VERSION:
            step = next_step(
                observed.current_master_version,
                given["cluster"]["initial_cluster_version"],
            )
            self._begin(
                "update_cluster",
                {"name": name, "update": {"desired_master_version": step}},
            )
        else:
            addons = {"desired_addons_config": given["cluster"]["addons_config"]}
            self._begin("update_cluster", {"name": name, "update": addons})

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the deletion of the cluster with its pools.

        Raises Busy while another operation runs on it. A running creation of a pool is
        cancelled.
        """
        del found
        self._deleting = True
        given = parameters(wanted)
        try:
            self._operations.begin(
                self._api.delete("container", "delete_cluster", {"name": _path(given)})
            )
        except Busy:
            self._operations.cancel_creations(given["parent"], given["cluster"]["name"])
            raise

    def _begin(self, operation: str, request: dict[str, Any]) -> None:
        self._operations.begin(self._api.change("container", operation, request))


def _failed(wanted: ObjectWork, failed: ModelplaneError) -> CloudObservation:
    """Raise the error of a failed creation.

    A second internal error counts as Broken.
    """
    if isinstance(failed, ServerError) and wanted.attempt > 1:
        return CloudObservation(
            State.BROKEN, reason=failed.message, cause=CloudObjectBroken
        )
    raise failed


def _cause(problem: ModelplaneError) -> type[ModelplaneError]:
    return CloudObjectBroken if problem.retryable else type(problem)


def _changes(cluster: dict[str, Any], found: Any) -> tuple[str, ...]:
    """Return the differences, in the order in which they are changed."""
    system = _system_pool(cluster)["name"]
    pool = next((each for each in found.node_pools if each.name == system), None)
    wanted = cluster["initial_cluster_version"]
    differs = {
        _STATUS: found.status.name == "DEGRADED",
        _SYSTEM_POOL: pool is None,
        _SYSTEM_STATUS: pool is not None and pool.status.name in _NOT_USABLE,
        _MAINTENANCE: is_other_policy(cluster["maintenance_policy"], found),
        _FILESTORE: not found.addons_config.gcp_filestore_csi_driver_config.enabled,
        _VERSION: is_below(found.current_master_version, wanted),
        _SYSTEM_VERSION: pool is not None and is_below(pool.version, wanted),
    }
    return tuple(name for name, different in differs.items() if different)


def _node_account(cluster: dict[str, Any], found: Any) -> str:
    """Return the account of the system pool, or the desired one without that pool."""
    system = _system_pool(cluster)
    accounts = [
        str(each.config.service_account)
        for each in found.node_pools
        if each.name == system["name"]
    ]
    return next(iter(accounts), str(system["config"]["service_account"]))


def _difference(found: Any) -> str:
    return f"status {found.status.name}, version {found.current_master_version}"


def _cluster(wanted: ObjectWork) -> dict[str, Any]:
    cluster: dict[str, Any] = parameters(wanted)["cluster"]
    return cluster


def _system_pool(cluster: dict[str, Any]) -> dict[str, Any]:
    pool: dict[str, Any] = cluster["node_pools"][0]
    return pool


def _path(given: dict[str, Any]) -> str:
    return f"{given['parent']}/clusters/{given['cluster']['name']}"
