"""GPU pools of a GKE cluster."""

from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import parameters
from activities.clouds.gke.handlers.clusters import WANTED_VERSION
from activities.clouds.gke.handlers.operations import GkeOperations, words
from activities.clouds.gke.handlers.states import is_ours, mark, trouble
from activities.clouds.gke.versions import is_below
from activities.clouds.gke.wanted.cluster import CLUSTER
from activities.clouds.lifecycle.handler import Found, State, Wanted
from api_types.errors import Busy, CloudObjectBroken, ModelplaneError, ServerError

_STATUS = "status"
_ZONES = "zones"
_COUNTS = "counts"
_SIZE = "nodeCount"
_LABELS = "labels"
_VERSION = "version"

# Facts of a pool of a fixed size: what was set last, and what GKE showed then as its size.
_SIZE_SET, _SIZE_SHOWN = "sizeSet", "sizeShown"

_BOUNDS = ("enabled", "min_node_count", "max_node_count", "total_min_node_count", "total_max_node_count")


class NodePoolHandler:
    """A pool. What is wanted of it are the parameters of `create_node_pool`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operations = GkeOperations(api)
        self._deleting = False
        # GKE may go on to show the first size of a pool after another one was set.
        self._size_set = False

    def look(self, wanted: Wanted) -> Found:
        """Find it by its name in the cluster, and what runs on the cluster."""
        given = parameters(wanted)
        location = given["parent"].partition("/clusters/")[0]
        doing = f"{'delete' if self._deleting else 'create or change'} pool {wanted.object.name}"
        running, failed = self._operations.own(location, doing, deleting=self._deleting)
        found = self._api.find("container", "get_node_pool", {"name": _path(given)})
        if found is None:
            return self._absent(wanted, given, running, failed)
        observed = dict(found.config.resource_labels)
        if not is_ours(observed, given["node_pool"]["config"]["resource_labels"]):
            return Found(State.FOREIGN, found.name, reason=mark(observed))
        return self._present(wanted, given["node_pool"], found, running, failed)

    def _absent(self, wanted: Wanted, given: dict[str, Any], running: Any | None, failed: ModelplaneError | None) -> Found:
        if failed is not None and not self._deleting:
            if isinstance(failed, ServerError) and wanted.attempt > 1:
                return Found(State.BROKEN, reason=failed.message, cause=CloudObjectBroken)
            raise failed
        location, _, cluster = given["parent"].partition("/clusters/")
        # Any operation holds the cluster, so one on another pool is waited for as well.
        others = [running] if running is not None else self._operations.running(location, cluster)
        own = [each for each in others if each.target_link.endswith(f"/nodePools/{wanted.object.name}")]
        for each in [*own, *others]:
            state = State.DELETING if each in own and each.operation_type.name == "DELETE_NODE_POOL" else State.PENDING
            return Found(state, reason=words(each))
        return Found(State.ABSENT, uncertain=True)

    def _present(self, wanted: Wanted, pool: dict[str, Any], found: Any, running: Any | None, failed: ModelplaneError | None) -> Found:
        status, name = found.status.name, found.name
        if status == "STOPPING":
            return Found(State.DELETING, name, reason=f"status {status}")
        if status == "ERROR":
            problem = failed or trouble(f"pool {name}", found)
            return Found(State.BROKEN, name, reason=problem.message, cause=CloudObjectBroken if problem.retryable else type(problem))
        if failed is not None:
            raise failed
        if running is not None or status == "PROVISIONING":
            return Found(State.PENDING, name, reason=words(running) if running is not None else f"status {status}")
        facts = {"id": name, "version": found.version} | _size(pool, found)
        changes, replaces = self._changes(wanted, pool, found), _replaces(pool, found)
        if status == "RECONCILING" and (changes or not wanted.known_id):
            return Found(State.PENDING, name, facts, reason=f"status {status}")
        if replaces:
            return Found(State.DIFFERS, name, facts, reason=_difference(pool, found), replaces=replaces)
        if changes:
            return self._waiting_for_others(wanted, Found(State.DIFFERS, name, facts, reason=f"status {status}", changes=changes))
        return Found(State.READY, name, facts)

    def _waiting_for_others(self, wanted: Wanted, differs: Found) -> Found:
        """Give a pool that must be changed as pending while another operation holds the cluster."""
        location, _, cluster = parameters(wanted)["parent"].partition("/clusters/")
        for each in self._operations.running(location, cluster):
            return Found(State.PENDING, differs.id, differs.facts, reason=words(each))
        return differs

    def create(self, wanted: Wanted) -> None:
        """Begin to create it. Raises Busy while another operation holds the cluster, NotYet without the cluster."""
        self._operations.begin(self._api.create("container", "create_node_pool", parameters(wanted)))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Begin the first of the changes: GKE takes one at a time. Raises what a pool with errors says."""
        given = parameters(wanted)
        name, pool, change = _path(given), given["node_pool"], found.changes[0]
        observed = self._api.read("container", "get_node_pool", {"name": name})
        if change == _STATUS:
            raise trouble(f"pool {found.id}", observed)
        if change == _COUNTS:
            self._begin("set_node_pool_autoscaling", {"name": name, "autoscaling": pool["autoscaling"]})
        elif change == _SIZE:
            self._size_set = True
            self._begin("set_node_pool_size", {"name": name, "node_count": pool["initial_node_count"]})
        elif change == _ZONES:
            self._begin("update_node_pool", {"name": name, "locations": pool["locations"]})
        elif change == _LABELS:
            # GKE replaces all labels, so those of others are sent as well.
            labels = {**dict(observed.config.labels), **pool["config"]["labels"]}
            self._begin("update_node_pool", {"name": name, "labels": {"labels": labels}})
        else:
            cluster = self._api.read("container", "get_cluster", {"name": given["parent"]})
            self._begin("update_node_pool", {"name": name, "node_version": cluster.current_master_version})

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Begin to delete it, which drains its nodes. Raises Busy while another operation holds the cluster; its creation is cancelled."""
        del found
        self._deleting = True
        given = parameters(wanted)
        try:
            self._operations.begin(self._api.delete("container", "delete_node_pool", {"name": _path(given)}))
        except Busy:
            location, _, cluster = given["parent"].partition("/clusters/")
            self._operations.cancel_creations(location, cluster, wanted.object.name)
            raise

    def _begin(self, operation: str, request: dict[str, Any]) -> None:
        self._operations.begin(self._api.change("container", operation, request))

    def _changes(self, wanted: Wanted, pool: dict[str, Any], found: Any) -> tuple[str, ...]:
        """Give what differs and can be changed, in the order in which it is changed."""
        bounds, observed = pool["autoscaling"], found.autoscaling
        labels = dict(found.config.labels)
        version = wanted.known.get(CLUSTER, {}).get(WANTED_VERSION, "")
        differs = {
            _STATUS: found.status.name == "RUNNING_WITH_ERROR",
            _COUNTS: any(bounds.get(name, 0) != getattr(observed, name) for name in _BOUNDS),
            _SIZE: not bounds["enabled"] and not self._size_set and not _has_size(wanted, pool, found),
            _ZONES: set(pool["locations"]) != set(found.locations),
            _LABELS: any(labels.get(key) != value for key, value in pool["config"]["labels"].items()),
            _VERSION: bool(version) and is_below(found.version, version),
        }
        return tuple(name for name, different in differs.items() if different)


def _size(pool: dict[str, Any], found: Any) -> dict[str, str]:
    """Give the facts of a fixed size; none of a pool that is scaled."""
    if pool["autoscaling"]["enabled"]:
        return {}
    return {_SIZE_SET: str(pool["initial_node_count"]), _SIZE_SHOWN: str(found.initial_node_count)}


def _has_size(wanted: Wanted, pool: dict[str, Any], found: Any) -> bool:
    """Whether a pool has its fixed size: that which was set last, unless GKE shows another one since."""
    facts, shown = wanted.known.get(wanted.object.key, {}), str(found.initial_node_count)
    there = facts[_SIZE_SET] if facts.get(_SIZE_SHOWN) == shown else shown
    return there == str(pool["initial_node_count"])


def _replaces(pool: dict[str, Any], found: Any) -> tuple[str, ...]:
    """Give what differs and would need other machines."""
    pairs = _fixed(pool, found)
    return tuple(name for name, (wanted, observed) in pairs.items() if wanted != observed)


def _difference(pool: dict[str, Any], found: Any) -> str:
    pairs = _fixed(pool, found)
    return ", ".join(f"{name} is {observed}, not {wanted}" for name, (wanted, observed) in pairs.items() if wanted != observed)


def _fixed(pool: dict[str, Any], found: Any) -> dict[str, tuple[str, str]]:
    """Give what is wanted and observed of what a pool keeps for its life, in the words of an InferenceClass."""
    config, observed = pool["config"], found.config
    return {
        "machineType": (config["machine_type"], observed.machine_type),
        "diskSizeGb": (str(config["disk_size_gb"]), str(observed.disk_size_gb)),
        "accelerator": (
            ", ".join(f"{each['accelerator_count']} {each['accelerator_type']}" for each in config["accelerators"]),
            ", ".join(f"{each.accelerator_count} {each.accelerator_type}" for each in observed.accelerators),
        ),
    }


def _path(given: dict[str, Any]) -> str:
    return f"{given['parent']}/nodePools/{given['node_pool']['name']}"
