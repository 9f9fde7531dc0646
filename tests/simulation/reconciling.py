"""The base of the controllers of a simulated cluster: a queue of work in virtual time."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.fields import Json
from tests.simulation.store import ObjectKey, ObjectStore, StoredChange

Range = tuple[float, float]
Handler = Callable[[ObjectKey, Json | None, Json | None], None]
Sync = Callable[[ObjectKey, Json], None]
CONTROLLER = "kube-controller-manager"
NAME_MAX = 58


@dataclass
class ClusterBehaviour:
    """Durations on a cluster in seconds, and the probabilities of failures.

    Faults change them while a simulation runs.
    """

    reaction: Range = (0.02, 1.0)
    start: Range = (1.0, 60.0)
    ready: Range = (20.0, 400.0)
    end: Range = (0.5, 20.0)
    bind: Range = (0.5, 20.0)
    job: Range = (30.0, 2400.0)
    gateway: Range = (0.5, 8.0)
    address: Range = (2.0, 90.0)
    removal: Range = (0.5, 60.0)
    gateway_runs: bool = True
    lws_runs: bool = True
    image_fails: float = 0.0
    crashes: float = 0.0
    download_fails: float = 0.0
    # Returns the revision that the pod of a download reports.
    staged: Callable[[Json], str] = lambda _pod: "a" * 40


class Hub:
    """Notifies controllers of changes, and runs their work once for several changes."""

    def __init__(
        self, store: ObjectStore, draw: random.Random, behaviour: ClusterBehaviour
    ) -> None:
        self.store = store
        self.draw = draw
        self.behaviour = behaviour
        self._handlers: defaultdict[str, list[Handler]] = defaultdict(list)
        self._syncs: dict[str, Sync] = {}
        self._queued: dict[tuple[Any, ...], asyncio.TimerHandle] = {}
        store.listeners.append(self._changed)

    def on(self, kind: str, handler: Handler) -> None:
        """Call a handler at each change of an object of a kind."""
        self._handlers[kind].append(handler)

    def on_sync(self, kind: str, sync: Sync) -> None:
        """Call a function a moment after changes of an object of a kind, or of its dependents."""
        self._syncs[kind] = sync

    def later(self, work: Callable[..., None], *arguments: Any, after: Range | None = None) -> None:
        """Call a function a moment later, only once while it is queued."""
        queued = (work.__qualname__, *arguments)
        if queued in self._queued:
            return

        def call() -> None:
            self._queued.pop(queued, None)
            work(*arguments)

        seconds = self.draw.uniform(*(after or self.behaviour.reaction))
        self._queued[queued] = asyncio.get_running_loop().call_later(seconds, call)

    def stop(self) -> None:
        """Stop all work: the cluster is gone."""
        for handle in self._queued.values():
            handle.cancel()
        self._queued.clear()
        self.store.listeners.clear()

    def owned(self, owner: Json, kind: str) -> list[tuple[ObjectKey, Json]]:
        """Return the objects of a kind that have an owner."""
        found = (
            (each, self.store.get(each))
            for each in self.store.dependents(owner["metadata"]["uid"])
            if each.kind == kind
        )
        return [(each, item) for each, item in found if item is not None]

    def pods_of(self, owner: Json) -> list[Json]:
        """Return the pods that an owner counts. Only a Job counts ended pods."""
        pods = [item for _, item in self.owned(owner, "Pod")]
        return pods if owner["kind"] == "Job" else [pod for pod in pods if not has_ended(pod)]

    def create_pod(
        self,
        namespace: str,
        name: str,
        template: Json,
        owner: Json,
        marks: Mapping[str, str] | None = None,
    ) -> None:
        """Create a pod from a template; nothing can be created in a namespace that goes."""
        found = self.store.get(ObjectKey("", "Namespace", "", namespace))
        if found is None or is_deleted(found):
            return
        metadata = template.get("metadata", {})
        annotations = metadata.get("annotations")
        made = {
            "name": name,
            "namespace": namespace,
            "labels": {**metadata.get("labels", {}), **(marks or {})},
            "ownerReferences": [owner_reference(owner)],
        }
        if annotations:
            made["annotations"] = annotations
        status = {"phase": "Pending", "conditions": []}
        self.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": made,
                "spec": template["spec"],
                "status": status,
            },
            CONTROLLER,
        )

    def generated(self, base: str) -> str:
        """Return a name as the API server generates it."""
        return f"{f'{base}-'[:NAME_MAX]}{self.draw.getrandbits(20):05x}"

    def _changed(self, change: StoredChange) -> None:
        key, before, after = change.key, change.before, change.after
        if after is not None and key.kind in self._syncs:
            self.later(self._sync, key)
        for owner in (after or before or {}).get("metadata", {}).get("ownerReferences", ()):
            self._follow(ObjectKey(group_of(owner), owner["kind"], key.namespace, owner["name"]))
        for handler in self._handlers[key.kind] + self._handlers["*"]:
            handler(key, before, after)

    def _follow(self, owner: ObjectKey) -> None:
        """Queue an owner, and the owners above it, for their controllers."""
        if owner.kind in self._syncs:
            self.later(self._sync, owner)
        found = self.store.get(owner)
        for above in found["metadata"].get("ownerReferences", ()) if found else ():
            self._follow(ObjectKey(group_of(above), above["kind"], owner.namespace, above["name"]))

    def _sync(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is not None:
            self._syncs[key.kind](key, item)


class Part:
    """A controller."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.store = hub.store
        self.draw = hub.draw
        self.behaviour = hub.behaviour
        self.later = hub.later

    def without_finalizer(self, key: ObjectKey, finalizer: str) -> None:
        """Remove a finalizer from an object."""
        item = self.store.get(key)
        if item is not None:
            self.store.set_finalizers(
                key, [each for each in item["metadata"].get("finalizers", ()) if each != finalizer]
            )


def key_of(item: Json) -> ObjectKey:
    """Return the key of a stored object."""
    metadata = item["metadata"]
    return ObjectKey(
        item["apiVersion"].rpartition("/")[0],
        item["kind"],
        metadata.get("namespace", ""),
        metadata["name"],
    )


def key_above(reference: Json, namespace: str) -> ObjectKey:
    """Return the key of the object that an owner reference names."""
    return ObjectKey(group_of(reference), reference["kind"], namespace, reference["name"])


def group_of(reference: Json) -> str:
    """Return the API group of the object that an owner reference names."""
    return str(reference["apiVersion"]).rpartition("/")[0]


def owner_reference(owner: Json) -> Json:
    """Return the reference by which a controller owns an object."""
    metadata = owner["metadata"]
    named = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {**named, "controller": True, "blockOwnerDeletion": True}


def is_owned_by(item: Json, owner: Json) -> bool:
    """Return whether an object has an owner."""
    return any(
        each["uid"] == owner["metadata"]["uid"]
        for each in item["metadata"].get("ownerReferences", ())
    )


def is_deleted(item: Json) -> bool:
    """Return whether the deletion of an object was requested."""
    return bool(item["metadata"].get("deletionTimestamp"))


def is_ready(item: Json) -> bool:
    """Return whether a pod or a node is Ready."""
    conditions = item.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def has_ended(pod: Json) -> bool:
    """Return whether a pod has ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def restarts_of(pod: Json) -> int:
    """Count the restarts of a pod's containers."""
    return max(
        (
            each.get("restartCount", 0)
            for each in pod.get("status", {}).get("containerStatuses", ())
        ),
        default=0,
    )


def claims_of(pod: Json) -> list[str]:
    """Name the volume claims that a pod mounts."""
    volumes = pod["spec"].get("volumes", ())
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]


def condition_of(
    item: Json, kind: str, *, true: bool = True, reason: str = "", message: str = ""
) -> Json:
    """Return a condition for the present generation of an object."""
    found = {
        "type": kind,
        "status": str(true),
        "observedGeneration": item["metadata"]["generation"],
    }
    return {**found, **({"reason": reason, "message": message} if reason else {})}


def part_of(amount: int | str, whole: int, *, up: bool) -> int:
    """Return a number of pods that is written as a number or as a share."""
    if isinstance(amount, int):
        return amount
    share = whole * int(amount.removesuffix("%"))
    return -(-share // 100) if up else share // 100
