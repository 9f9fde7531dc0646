"""Update inventory entries with the results of activities and observations.

Apart from recording events, these functions have no side effects.
"""

from datetime import datetime

from api_types.errors import NotYet, is_permanent
from api_types.messages.clouds import (
    CLUSTER_KEY,
    CloudHealth,
    CloudObjectResult,
    CloudObjectShown,
    Facts,
)
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.failures import (
    BROKEN,
    cause_of_broken,
    delay_after,
    delay_of_rebuild,
)
from workflows.cloud_cluster.graph import dependents
from workflows.cloud_cluster.state import NOT_OBSERVED, InventoryEntry
from workflows.entity.failures import NO_FAILURE, Failure

_HELD = (
    "it no longer exists, and is not recreated automatically because that could hide "
    "an accident: run `modelplane retry` to recreate it"
)
# From this number of consecutive epochs without a Ready object, the entry shows a
# failure.
_UNSEEN_MAX = 3
_UNSEEN = (
    "it was created several times but the cloud does not list it: "
    "check whether another object uses its name or address"
)


class Inventory:
    """The inventory, with one method for each kind of result."""

    def __init__(self, context: CloudContext) -> None:
        self._context = context
        self._state = context.state

    # Results of activities

    def made(self, key: str, digest: str, result: CloudObjectResult) -> bool:
        """Record the result of an ensure.

        Return True if the object has to be deleted now because a user asked to recreate
        it.
        """
        entry = self._state.inventory[key]
        entry.message = result.message
        if result.phase == "Ready":
            self._ready(entry, digest, result.facts)
            self._healthy(entry, result.health)
        elif result.phase == "Broken":
            return self._broken(entry, result)
        else:
            self._absent(entry)
        return False

    def _ready(self, entry: InventoryEntry, digest: str, facts: Facts) -> None:
        if entry.trouble.type:
            self._recovered(entry)
        if not entry.was_ready:
            self._context.record("Normal", "CloudObjectReady", entry.title)
            if entry.since:
                took = self._context.now() - datetime.fromisoformat(entry.since)
                self._state.durations[entry.object.kind] = max(
                    int(took.total_seconds()), 1
                )
        if entry.facts and entry.facts != facts:
            self._look_again(entry.object.key)
        entry.phase, entry.facts, entry.made, entry.was_ready = (
            "Ready",
            facts,
            digest,
            True,
        )
        entry.rebuilds, entry.rebuild, entry.unseen = 0, False, 0
        self.clear(entry)
        entry.trouble = NO_FAILURE

    def _healthy(self, entry: InventoryEntry, health: CloudHealth | None) -> None:
        """Record the health of an existing object, with an event if it changed.

        The cloud may word the same problem differently each time.
        """
        before, entry.health = entry.health, health
        if health is not None:
            if before is None or (before.error, before.code) != (
                health.error,
                health.code,
            ):
                self._context.record(
                    "Warning", health.error, f"{entry.title}: {health.text}"
                )
            self._note_trouble(entry)
        elif before is not None:
            self._recovered(entry)
        if health is None and not entry.trouble.type:
            entry.trouble_since = ""

    def _recovered(self, entry: InventoryEntry) -> None:
        text = f"{entry.title}: it has no problem any more"
        self._context.record("Normal", "CloudObjectRecovered", text)

    def _note_trouble(self, entry: InventoryEntry) -> None:
        entry.trouble_since = entry.trouble_since or self._context.now().isoformat()

    def _broken(self, entry: InventoryEntry, result: CloudObjectResult) -> bool:
        """Record that an object is broken.

        An object that was never Ready is recreated at once, up to the plan's limit, and
        then after growing pauses, unless only another spec can help. Otherwise it fails
        and waits for a user. Return True if a user already asked to recreate it.
        """
        limit = self._state.plan.rebuilds if self._state.plan else 0
        entry.phase = "Broken"
        entry.facts = result.facts or entry.facts
        failure = Failure(
            cause_of_broken(result.cause), result.message or "it is in a failed state"
        )
        at_once = entry.rebuilds < limit and not is_permanent(failure.type)
        if not entry.was_ready and at_once:
            self._context.record(
                "Warning",
                "CloudObjectBroken",
                f"{entry.title} is recreated: {result.message}",
            )
            self.clear(entry)
            return False
        if entry.was_ready and entry.rebuild:
            self._context.record(
                "Warning",
                "CloudObjectBroken",
                f"{entry.title} is deleted and recreated: {result.message}",
            )
            self.clear(entry)
            return True
        self.failed(entry.object.key, failure)
        delay = delay_of_rebuild(failure, self._state.plan, entry.rebuilds)
        entry.retry_at = self._context.later(delay)
        entry.phase = "Broken"
        return False

    def _absent(self, entry: InventoryEntry) -> None:
        if entry.object.key == CLUSTER_KEY and entry.was_ready:
            self._hold(entry)
            return
        unseen = 0 if entry.was_ready else entry.unseen + 1
        self.begin_epoch(entry)
        entry.unseen = unseen
        if unseen >= _UNSEEN_MAX:
            self.failed(entry.object.key, Failure(NotYet.__name__, _UNSEEN))

    def removed(self, key: str, result: CloudObjectResult) -> None:
        """Record the result of the deletion of a single object while the cluster stays."""
        entry = self._state.inventory[key]
        if result.message:
            self._context.record(
                "Warning", "NotOwned", f"{entry.title}: {result.message}"
            )
        self.clear(entry)
        if entry.removed_since:
            self._context.record("Normal", "CloudObjectDeleted", entry.title)
            del self._state.inventory[key]
            return
        # The object was deleted because it was broken, or the plan contains it again.
        entry.rebuilds += entry.phase == "Broken"
        self.begin_epoch(entry)

    def failed(self, key: str, failure: Failure) -> None:
        """Record why an activity failed and when the next attempt may start."""
        entry = self._state.inventory[key]
        if entry.failure != failure:
            self._context.record(
                "Warning", failure.type, f"{entry.title}: {failure.message}"
            )
        entry.failure, entry.trouble, entry.since = failure, failure, ""
        self._note_trouble(entry)
        lasted = self._context.now() - datetime.fromisoformat(entry.trouble_since)
        delay = delay_after(failure, self._state.plan, lasted)
        entry.retry_at = self._context.later(delay)
        if entry.phase != "Broken":
            entry.phase = "Ready" if entry.was_ready else "Waiting"

    # Observations

    def observed(self, shown: CloudObjectShown, facts: Facts | None) -> None:
        """Record an observation.

        Objects that differ from the plan are ensured again. An object that cannot be
        read, or has lost its tags, keeps its phase.
        """
        entry = self._state.inventory.get(shown.key)
        if entry is None:
            return
        if shown.phase == "Unknown":
            entry.trouble = Failure(NOT_OBSERVED, shown.message)
            self._note_trouble(entry)
            return
        if entry.trouble.type == NOT_OBSERVED:
            entry.trouble = NO_FAILURE
            self._recovered(entry)
        if shown.phase in ("Ready", "Differs", "Creating"):
            entry.message = shown.message
            self._healthy(entry, shown.health)
        if shown.phase == "Ready":
            if facts and entry.facts and facts != entry.facts:
                self._look_again(shown.key)
            entry.facts = facts or entry.facts
        elif shown.phase in ("Differs", "Deleting") and entry.made:
            self._drifted(entry, shown.message or shown.phase)
        elif shown.phase == "Broken":
            entry.phase, entry.health = "Broken", None
            self.failed(
                shown.key,
                Failure(
                    cause_of_broken(shown.cause),
                    shown.message or "it is in a failed state",
                ),
            )
        elif shown.phase == "Absent":
            self._vanished(entry)

    def _drifted(self, entry: InventoryEntry, what: str) -> None:
        self._context.record("Warning", "DriftDetected", f"{entry.title}: {what}")
        entry.made = ""

    def _vanished(self, entry: InventoryEntry) -> None:
        if entry.object.key == CLUSTER_KEY:
            self._hold(entry)
            return
        self._context.record(
            "Warning",
            "CloudObjectMissing",
            f"{entry.title} no longer exists and is recreated",
        )
        self.begin_epoch(entry)

    def _hold(self, entry: InventoryEntry) -> None:
        if not entry.held:
            self._context.record(
                "Warning", "CloudClusterMissing", f"{entry.title}: {_HELD}"
            )
        entry.phase, entry.held, entry.made = "Absent", True, ""
        entry.failure, entry.retry_at = Failure(BROKEN, _HELD), ""
        entry.trouble = entry.failure
        self._note_trouble(entry)

    # Shared steps

    def begin_epoch(self, entry: InventoryEntry) -> None:
        """Start a new epoch for a missing object, so that it is created again.

        A missing control plane took its contents with it, so they start a new epoch as
        well. Other dependent objects are ensured again.
        """
        below = dependents(self._state.inventory, entry.object.key)
        entry.begin_epoch()
        self.clear(entry)
        for key in below:
            other = self._state.inventory[key]
            if entry.object.key == CLUSTER_KEY:
                other.begin_epoch()
                self.clear(other)
            else:
                other.made = ""

    def _look_again(self, key: str) -> None:
        """Ensure again all objects that need an object whose facts changed."""
        for other in dependents(self._state.inventory, key):
            self._state.inventory[other].made = ""

    def clear(self, entry: InventoryEntry) -> None:
        """Remove the failure of an object before another attempt."""
        entry.failure, entry.retry_at, entry.since = NO_FAILURE, "", ""

    def forget_trouble(self, entry: InventoryEntry) -> None:
        """Remove the failure of an object whose desired state changed."""
        self.clear(entry)
        entry.trouble = NO_FAILURE
        if entry.health is None:
            entry.trouble_since = ""

    def retry_all(self) -> None:
        """Make all objects due for their next attempt, even if they wait for a user."""
        for entry in list(self._state.inventory.values()):
            # An object that replicas may run on is only recreated if it is still broken
            # after the next ensure. A control plane is never recreated.
            entry.rebuild = (
                entry.phase == "Broken"
                and entry.was_ready
                and entry.object.key != CLUSTER_KEY
            )
            if entry.held:
                self.begin_epoch(entry)
            entry.retry_at = ""
