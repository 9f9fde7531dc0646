"""The handler of GPU pools of a GKE cluster."""

from dataclasses import replace
from typing import Any

from google.cloud import container_v1

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import parameters
from activities.clouds.gke.handlers.clusters import WANTED_VERSION
from activities.clouds.gke.handlers.operations import GkeOperations, words
from activities.clouds.gke.handlers.states import (
    health_of,
    is_ours,
    lost_labels,
    mark,
    trouble,
)
from activities.clouds.gke.versions import is_below
from activities.clouds.gke.wanted.cluster import CLUSTER
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from api_types.errors import Busy, CloudObjectBroken, ModelplaneError, ServerError

_STATUS = "status"
_ZONES = "zones"
_COUNTS = "counts"
_SIZE = "nodeCount"
_LABELS = "labels"
_UPGRADES = "upgrade settings"
_VERSION = "version"

# Facts of a pool with fixed size: the size that was set last, and the size that GKE
# showed then.
_SIZE_SET, _SIZE_SHOWN = "sizeSet", "sizeShown"

_BOUNDS = (
    "enabled",
    "min_node_count",
    "max_node_count",
    "total_min_node_count",
    "total_max_node_count",
)


class NodePoolHandler:
    """A pool. Its desired state is the parameters of `create_node_pool`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operations = GkeOperations(api)
        self._deleting = False
        # GKE may still show the initial size of a pool after another size was set.
        self._size_set = False

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the pool by its name, and the running operations that lock it."""
        given = parameters(wanted)
        location = given["parent"].partition("/clusters/")[0]
        verb = "delete" if self._deleting else "create or change"
        doing = f"{verb} pool {wanted.object.name}"
        running, failed = self._operations.own(location, doing, deleting=self._deleting)
        found = self._api.find("container", "get_node_pool", {"name": _path(given)})
        if found is None:
            return self._absent(wanted, given, running, failed)
        observed = dict(found.config.resource_labels)
        wanted_labels = given["node_pool"]["config"]["resource_labels"]
        if not is_ours(observed, wanted_labels):
            return CloudObservation(
                State.FOREIGN,
                found.name,
                reason=mark(observed),
                # The name of an unknown pool proves nothing.
                unmarked=lost_labels(given, observed) if wanted.is_known else "",
            )
        return self._present(wanted, given["node_pool"], found, running, failed)

    def _absent(
        self,
        wanted: ObjectWork,
        given: dict[str, Any],
        running: Any | None,
        failed: ModelplaneError | None,
    ) -> CloudObservation:
        if failed is not None and not self._deleting:
            if isinstance(failed, ServerError) and wanted.attempt > 1:
                return CloudObservation(
                    State.BROKEN, reason=failed.message, cause=CloudObjectBroken
                )
            raise failed
        location, _, cluster = given["parent"].partition("/clusters/")
        others = (
            [running]
            if running is not None
            else self._operations.locking(location, cluster, wanted.object.name)
        )
        for each in others:
            state = (
                State.DELETING
                if each.operation_type.name == "DELETE_NODE_POOL"
                else State.PENDING
            )
            return CloudObservation(state, reason=words(each))
        return CloudObservation(State.ABSENT, uncertain=True)

    def _present(
        self,
        wanted: ObjectWork,
        pool: dict[str, Any],
        found: Any,
        running: Any | None,
        failed: ModelplaneError | None,
    ) -> CloudObservation:
        status, name = found.status.name, found.name
        if status == "STOPPING":
            return CloudObservation(State.DELETING, name, reason=f"status {status}")
        if status == "ERROR":
            problem = failed or trouble(f"pool {name}", found)
            return CloudObservation(
                State.BROKEN,
                name,
                reason=problem.message,
                cause=CloudObjectBroken if problem.retryable else type(problem),
            )
        if failed is not None:
            raise failed
        if running is not None or status == "PROVISIONING":
            return CloudObservation(
                State.PENDING,
                name,
                reason=words(running) if running is not None else f"status {status}",
            )
        facts = {"id": name, "version": found.version} | _size(pool, found)
        changes, replaces = self._changes(wanted, pool, found), _replaces(pool, found)
        if status == "RECONCILING" and (changes or not wanted.known_id):
            return CloudObservation(
                State.PENDING, name, facts, reason=f"status {status}"
            )
        health = health_of(f"pool {name}", found)
        if replaces:
            return CloudObservation(
                State.DIFFERS,
                name,
                facts,
                reason=_difference(pool, found),
                replaces=replaces,
                health=health,
            )
        if changes:
            reason = f"status {status}"
            differs = CloudObservation(
                State.DIFFERS,
                name,
                facts,
                reason=reason,
                changes=changes,
                health=health,
            )
            return self._waiting_for_others(wanted, differs)
        return CloudObservation(State.READY, name, facts, health=health)

    def _waiting_for_others(
        self, wanted: ObjectWork, differs: CloudObservation
    ) -> CloudObservation:
        """Return a pool that must be changed, as Pending while it is locked."""
        location, _, cluster = parameters(wanted)["parent"].partition("/clusters/")
        for each in self._operations.locking(location, cluster, wanted.object.name):
            return replace(differs, state=State.PENDING, reason=words(each), changes=())
        return differs

    def create(self, wanted: ObjectWork) -> None:
        """Start the creation.

        Raises Busy while another operation locks the cluster or too many operations
        run, and NotYet if the cluster does not exist yet.
        """
        self._operations.begin(
            self._api.create("container", "create_node_pool", parameters(wanted))
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the first of the changes. GKE accepts one at a time.

        Raises the reported error of a pool with errors.
        """
        given = parameters(wanted)
        name, pool, change = _path(given), given["node_pool"], found.changes[0]
        observed = self._api.read("container", "get_node_pool", {"name": name})
        if change == _STATUS:
            raise trouble(f"pool {found.id}", observed)
        if change == _COUNTS:
            self._begin(
                "set_node_pool_autoscaling",
                {"name": name, "autoscaling": pool["autoscaling"]},
            )
        elif change == _SIZE:
            self._size_set = True
            self._begin(
                "set_node_pool_size",
                {"name": name, "node_count": pool["initial_node_count"]},
            )
        elif change == _ZONES:
            self._begin(
                "update_node_pool", {"name": name, "locations": pool["locations"]}
            )
        elif change == _LABELS:
            # GKE replaces all labels, so the labels of other users are sent too.
            labels = {**dict(observed.config.labels), **pool["config"]["labels"]}
            self._begin(
                "update_node_pool", {"name": name, "labels": {"labels": labels}}
            )
        elif change == _UPGRADES:
            self._begin(
                "update_node_pool",
                {"name": name, "upgrade_settings": pool["upgrade_settings"]},
            )
        else:
            cluster = self._api.read(
                "container", "get_cluster", {"name": given["parent"]}
            )
            self._begin(
                "update_node_pool",
                {"name": name, "node_version": cluster.current_master_version},
            )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the deletion, which drains the nodes.

        Raises Busy while another operation locks the cluster. A running creation of the
        pool is cancelled.
        """
        del found
        self._deleting = True
        given = parameters(wanted)
        try:
            self._operations.begin(
                self._api.delete(
                    "container", "delete_node_pool", {"name": _path(given)}
                )
            )
        except Busy:
            location, _, cluster = given["parent"].partition("/clusters/")
            self._operations.cancel_creations(location, cluster, wanted.object.name)
            raise

    def _begin(self, operation: str, request: dict[str, Any]) -> None:
        self._operations.begin(self._api.change("container", operation, request))

    def _changes(
        self, wanted: ObjectWork, pool: dict[str, Any], found: Any
    ) -> tuple[str, ...]:
        """Return the differences that can be changed, in the order of the changes."""
        bounds, observed = pool["autoscaling"], found.autoscaling
        upgrades = container_v1.NodePool.UpgradeSettings(pool["upgrade_settings"])
        labels = dict(found.config.labels)
        version = wanted.known.get(CLUSTER, {}).get(WANTED_VERSION, "")
        differs = {
            _COUNTS: any(
                bounds.get(name, 0) != getattr(observed, name) for name in _BOUNDS
            ),
            _SIZE: not bounds["enabled"]
            and not self._size_set
            and not _has_size(wanted, pool, found),
            _ZONES: set(pool["locations"]) != set(found.locations),
            _LABELS: any(
                labels.get(key) != value
                for key, value in pool["config"]["labels"].items()
            ),
            _UPGRADES: any(
                getattr(upgrades, name) != getattr(found.upgrade_settings, name)
                for name in pool["upgrade_settings"]
            ),
            _VERSION: bool(version) and is_below(found.version, version),
            # A change such as a smaller size may end the errors, so it comes first.
            _STATUS: found.status.name == "RUNNING_WITH_ERROR",
        }
        return tuple(name for name, different in differs.items() if different)


def _size(pool: dict[str, Any], found: Any) -> dict[str, str]:
    """Return the facts of a fixed size, or none for a pool with autoscaling."""
    if pool["autoscaling"]["enabled"]:
        return {}
    return {
        _SIZE_SET: str(pool["initial_node_count"]),
        _SIZE_SHOWN: str(found.initial_node_count),
    }


def _has_size(wanted: ObjectWork, pool: dict[str, Any], found: Any) -> bool:
    """Return True if a pool has its fixed size.

    The size that was set last counts, until GKE shows another size than it showed then.
    """
    facts, shown = (
        wanted.known.get(wanted.object.key, {}),
        str(found.initial_node_count),
    )
    there = facts[_SIZE_SET] if facts.get(_SIZE_SHOWN) == shown else shown
    return there == str(pool["initial_node_count"])


def _replaces(pool: dict[str, Any], found: Any) -> tuple[str, ...]:
    """Return the differences that require other machines."""
    pairs = _fixed(pool, found)
    return tuple(
        name for name, (wanted, observed) in pairs.items() if wanted != observed
    )


def _difference(pool: dict[str, Any], found: Any) -> str:
    pairs = _fixed(pool, found)
    return ", ".join(
        f"{name} is {observed}, not {wanted}"
        for name, (wanted, observed) in pairs.items()
        if wanted != observed
    )


def _fixed(pool: dict[str, Any], found: Any) -> dict[str, tuple[str, str]]:
    """Return desired and observed values of immutable fields of InferenceClass."""
    config, observed = pool["config"], found.config
    return {
        "machineType": (config["machine_type"], observed.machine_type),
        "diskSizeGb": (str(config["disk_size_gb"]), str(observed.disk_size_gb)),
        "accelerator": (
            ", ".join(
                f"{each['accelerator_count']} {each['accelerator_type']}"
                for each in config["accelerators"]
            ),
            ", ".join(
                f"{each.accelerator_count} {each.accelerator_type}"
                for each in observed.accelerators
            ),
        ),
    }


def _path(given: dict[str, Any]) -> str:
    return f"{given['parent']}/nodePools/{given['node_pool']['name']}"
