"""What becomes of an object of the inventory when work on it ends, or when it is looked at. Pure, but for events."""

from datetime import datetime

from temporalio import workflow

from api_types.errors import NotYet
from api_types.messages.clouds import CLUSTER_KEY, CloudObjectResult, CloudObjectShown, Facts
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.failures import BROKEN, cause_of_broken, delay_after
from workflows.cloud_cluster.graph import dependents
from workflows.cloud_cluster.state import Entry
from workflows.entity.failures import NO_FAILURE, Failure

_HELD = "it does not exist any more and is not created again by itself, for that would hide an accident: `modelplane retry` creates it"
# From this many epochs on in which it never was Ready, what is created and never seen has a failure that says so.
_UNSEEN_MAX = 3
_UNSEEN = "it was created again and again, and the cloud does not show it: see whether something else has its name or its address"
# In histories of before what is never seen is created again without a pause.
UNSEEN_PATCH = "never-seen"


class Entries:
    """The inventory, as results and looks change it."""

    def __init__(self, context: CloudContext) -> None:
        self._context = context
        self._state = context.state

    # --- results of work ----------------------------------------------------------------------------------------------------------

    def made(self, key: str, digest: str, result: CloudObjectResult) -> bool:
        """Record what an ensure gave; True if it is to be deleted now, because a person wants that it is built again."""
        entry = self._state.inventory[key]
        entry.message = result.message
        if result.phase == "Ready":
            self._ready(entry, digest, result.facts)
        elif result.phase == "Broken":
            return self._broken(entry, result)
        else:
            self._absent(entry)
        return False

    def _ready(self, entry: Entry, digest: str, facts: Facts) -> None:
        if not entry.was_ready:
            self._context.record("Normal", "CloudObjectReady", entry.title)
            if entry.since:
                took = self._context.now() - datetime.fromisoformat(entry.since)
                self._state.durations[entry.object.kind] = max(int(took.total_seconds()), 1)
        if entry.facts and entry.facts != facts:
            self._look_again(entry.object.key)
        entry.phase, entry.facts, entry.made, entry.was_ready = "Ready", facts, digest, True
        entry.rebuilds, entry.rebuild, entry.unseen = 0, False, 0
        self.clear(entry)

    def _broken(self, entry: Entry, result: CloudObjectResult) -> bool:
        """Have it built again at once; one that was ready, or was broken as often, waits. True if a person did not want it to wait."""
        limit = self._state.plan.rebuilds if self._state.plan else 0
        entry.phase = "Broken"
        entry.facts = result.facts or entry.facts
        if not entry.was_ready and entry.rebuilds < limit:
            self._context.record("Warning", "CloudObjectBroken", f"{entry.title} is built again: {result.message}")
            self.clear(entry)
            return False
        if entry.was_ready and entry.rebuild:
            self._context.record("Warning", "CloudObjectBroken", f"{entry.title} is deleted and built again: {result.message}")
            self.clear(entry)
            return True
        self.failed(entry.object.key, Failure(cause_of_broken(result.cause), result.message or "it is in a failed state"))
        entry.phase = "Broken"
        return False

    def _absent(self, entry: Entry) -> None:
        if entry.object.key == CLUSTER_KEY and entry.was_ready:
            self._hold(entry)
            return
        unseen = 0 if entry.was_ready else entry.unseen + 1
        self.begin_epoch(entry)
        entry.unseen = unseen
        if unseen >= _UNSEEN_MAX and workflow.patched(UNSEEN_PATCH):
            self.failed(entry.object.key, Failure(NotYet.__name__, _UNSEEN))

    def removed(self, key: str, result: CloudObjectResult) -> None:
        """Record what the deletion of an object gave, in a cluster that stays."""
        entry = self._state.inventory[key]
        if result.message:
            self._context.record("Warning", "NotOwned", f"{entry.title}: {result.message}")
        self.clear(entry)
        if entry.removed_since:
            self._context.record("Normal", "CloudObjectDeleted", entry.title)
            del self._state.inventory[key]
            return
        # It was broken, or is wanted again.
        entry.rebuilds += entry.phase == "Broken"
        self.begin_epoch(entry)

    def failed(self, key: str, failure: Failure) -> None:
        """Record why work on an object failed, and when the next attempt is made."""
        entry = self._state.inventory[key]
        if entry.failure != failure:
            self._context.record("Warning", failure.type, f"{entry.title}: {failure.message}")
        entry.failure, entry.since = failure, ""
        entry.retry_at = self._context.later(delay_after(failure, self._state.plan))
        if entry.phase != "Broken":
            entry.phase = "Ready" if entry.was_ready else "Waiting"

    # --- looks --------------------------------------------------------------------------------------------------------------------

    def observed(self, shown: CloudObjectShown, facts: Facts | None) -> None:
        """Record what a look found; what differs is made again."""
        entry = self._state.inventory.get(shown.key)
        if entry is None:
            return
        if shown.phase == "Ready":
            if facts and entry.facts and facts != entry.facts:
                self._look_again(shown.key)
            entry.facts = facts or entry.facts
        elif shown.phase in ("Differs", "Deleting") and entry.made:
            self._drifted(entry, shown.message or shown.phase)
        elif shown.phase == "Broken":
            entry.phase = "Broken"
            self.failed(shown.key, Failure(BROKEN, shown.message or "it is in a failed state"))
        elif shown.phase == "Absent":
            self._vanished(entry)

    def _drifted(self, entry: Entry, what: str) -> None:
        self._context.record("Warning", "DriftDetected", f"{entry.title}: {what}")
        entry.made = ""

    def _vanished(self, entry: Entry) -> None:
        if entry.object.key == CLUSTER_KEY:
            self._hold(entry)
            return
        self._context.record("Warning", "CloudObjectMissing", f"{entry.title} does not exist any more and is created again")
        self.begin_epoch(entry)

    def _hold(self, entry: Entry) -> None:
        if not entry.held:
            self._context.record("Warning", "CloudClusterMissing", f"{entry.title}: {_HELD}")
        entry.phase, entry.held, entry.made = "Absent", True, ""
        entry.failure, entry.retry_at = Failure(BROKEN, _HELD), ""

    # --- what they share ----------------------------------------------------------------------------------------------------------

    def begin_epoch(self, entry: Entry) -> None:
        """Have an object created again that is gone. What was in a control plane went with it; what else needs it is looked at again."""
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
        """Have all looked at that need an object, which is another one now."""
        for other in dependents(self._state.inventory, key):
            self._state.inventory[other].made = ""

    def clear(self, entry: Entry) -> None:
        """Forget the failure of an object."""
        entry.failure, entry.retry_at, entry.since = NO_FAILURE, "", ""

    def retry_all(self) -> None:
        """Make the next attempt at everything now, also at what waits for a person."""
        for entry in list(self._state.inventory.values()):
            # What replicas may run on is deleted only if the next look still finds it broken, and a control plane never is.
            entry.rebuild = entry.phase == "Broken" and entry.was_ready and entry.object.key != CLUSTER_KEY
            if entry.held:
                self.begin_epoch(entry)
            entry.retry_at = ""
