"""Garbage collection, namespaces and definitions: deletions that follow from others."""

from collections.abc import Callable, Sequence

from api_types import clock
from tests.simulation.fields import Json
from tests.simulation.reconciling import Hub, Part, group_of, is_deleted, key_of
from tests.simulation.store import FOREGROUND, ORPHAN, ObjectKey

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Collector(Part):
    """The garbage collector, with the controllers of namespaces and definitions.

    `on_definition` is called with a definition and whether its kind is served from now on.
    """

    def __init__(self, hub: Hub, on_definition: Callable[[Json, bool], None]) -> None:
        super().__init__(hub)
        self._on_definition = on_definition
        hub.on("*", self._any)
        hub.on("Namespace", self._namespace)
        hub.on("CustomResourceDefinition", self._definition)

    def _any(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if after is None and before is not None:
            self.later(self._collect, before["metadata"]["uid"], key.namespace)
            for owner in before["metadata"].get("ownerReferences", ()):
                self.later(
                    self._foreground,
                    ObjectKey(group_of(owner), owner["kind"], key.namespace, owner["name"]),
                )
        if after and is_deleted(after):
            # A second deletion may ask for another propagation than the first one.
            known = _finalizers(before) if before and is_deleted(before) else ()
            finalizers = [each for each in _finalizers(after) if each not in known]
            if FOREGROUND in finalizers:
                self.later(self._foreground, key)
            elif ORPHAN in finalizers:
                self.later(self._orphan, key)

    def _foreground(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is None or FOREGROUND not in item["metadata"].get("finalizers", ()):
            return
        left = self.store.dependents(item["metadata"]["uid"])
        for each in left:
            found = self.store.get(each)
            if found and not is_deleted(found):
                below = self.store.dependents(found["metadata"]["uid"])
                self.store.delete(
                    each,
                    uid=found["metadata"]["uid"],
                    propagation="Foreground" if below else "Background",
                )
        if not self.store.dependents(item["metadata"]["uid"]):
            self.without_finalizer(key, FOREGROUND)

    def _orphan(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is not None:
            for each in self.store.dependents(item["metadata"]["uid"]):
                self.store.orphan(each, item["metadata"]["uid"])
            self.without_finalizer(key, ORPHAN)

    def _collect(self, uid: str, namespace: str) -> None:
        for each in self.store.dependents(uid):
            found = self.store.get(each)
            owners = found["metadata"].get("ownerReferences", ()) if found else ()
            if found and not any(self._exists(owner, namespace) for owner in owners):
                self.store.delete(each, uid=found["metadata"]["uid"], propagation="Background")

    def _exists(self, owner: Json, namespace: str) -> bool:
        for where in (namespace, ""):
            found = self.store.get(ObjectKey(group_of(owner), owner["kind"], where, owner["name"]))
            if found and found["metadata"]["uid"] == owner["uid"]:
                return True
        return False

    def _namespace(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        del before
        if after and is_deleted(after):
            self.later(self._empty_namespace, key)

    def _empty_namespace(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is None:
            return
        self.store.set_status(key, phase="Terminating")
        left = [
            each
            for each in self.store.everything()
            if each["metadata"].get("namespace") == key.name
        ]
        for each in left:
            if not is_deleted(each):
                self.store.delete(key_of(each), propagation="Background")
        if any(self.store.get(key_of(each)) for each in left):
            self.later(self._empty_namespace, key, after=(1.0, 5.0))
        elif not item["metadata"].get("finalizers"):
            self.store.remove(key)

    def _definition(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if before is None and after is not None:
            self.store.set_finalizers(key, [_CLEANUP])
            self.later(self._establish, key)
        elif after and is_deleted(after):
            self.later(self._clean_definition, key)
        elif after and before and before["spec"] != after["spec"]:
            self.later(self._establish, key)

    def _establish(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is None or is_deleted(item):
            return
        now = clock.timestamp(clock.utc_now())
        if not item.get("status"):
            conditions = [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("NamesAccepted", "Established")
            ]
            stored = [each["name"] for each in item["spec"]["versions"] if each.get("storage")]
            self.store.set_status(key, conditions=conditions, storedVersions=stored)
        self._on_definition(item, True)  # noqa: FBT003 - served

    def _clean_definition(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is None:
            return
        group, kind = item["spec"]["group"], item["spec"]["names"]["kind"]
        for each in self.store.find(group, kind):
            if not is_deleted(each):
                self.store.delete(key_of(each))
        if self.store.find(group, kind):
            self.later(self._clean_definition, key, after=(1.0, 5.0))
            return
        self._on_definition(item, False)  # noqa: FBT003 - not served
        self.without_finalizer(key, _CLEANUP)


def _finalizers(item: Json) -> Sequence[str]:
    found: Sequence[str] = item["metadata"].get("finalizers", ())
    return found
