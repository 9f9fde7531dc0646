"""Volume claims and the volumes behind them."""

from tests.simulation.fields import Json
from tests.simulation.reconciling import CONTROLLER, Hub, Part, claims_of, has_ended, is_deleted
from tests.simulation.store import ObjectKey

_PROTECTED = "kubernetes.io/pvc-protection"


class StorageControllers(Part):
    """The controllers of volume claims."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        hub.on("PersistentVolumeClaim", self._volume_claim)
        hub.on("Pod", self._pod)

    def _pod(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if before and (after is None or has_ended(after)):
            for name in claims_of(before):
                self.later(
                    self._unprotect, ObjectKey("", "PersistentVolumeClaim", key.namespace, name)
                )

    def _volume_claim(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if before is None and after is not None:
            self.store.set_finalizers(key, [*after["metadata"].get("finalizers", ()), _PROTECTED])
            self.later(self._bind_claim, key, after=self.behaviour.bind)
        elif after and is_deleted(after):
            self.later(self._unprotect, key)
        elif after is None and before is not None:
            self.later(
                self._remove_volume,
                before["spec"].get("volumeName", ""),
                after=self.behaviour.removal,
            )

    def _bind_claim(self, key: ObjectKey) -> None:
        claim = self.store.get(key)
        if claim is None or is_deleted(claim) or claim["spec"].get("volumeName"):
            return
        name = claim["spec"].get("storageClassName", "")
        storage_class = self.store.get(ObjectKey("storage.k8s.io", "StorageClass", "", name))
        if storage_class is None:
            self.store.set_status(key, phase="Pending")
            self.later(self._bind_claim, key, after=(15.0, 30.0))
            return
        uid = claim["metadata"]["uid"]
        self.store.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pvc-{uid}"},
                "spec": {
                    "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
                    "claimRef": {"uid": uid, "namespace": key.namespace, "name": key.name},
                },
                "status": {"phase": "Bound"},
            },
            CONTROLLER,
        )
        self.store.set_spec(key, volumeName=f"pvc-{uid}")
        self.store.set_status(key, phase="Bound")

    def _unprotect(self, key: ObjectKey) -> None:
        claim = self.store.get(key)
        if claim is None or not is_deleted(claim):
            return
        users = [
            pod
            for pod in self.store.find("", "Pod", key.namespace)
            if key.name in claims_of(pod) and not has_ended(pod)
        ]
        if not users:
            self.without_finalizer(key, _PROTECTED)

    def _remove_volume(self, name: str) -> None:
        key = ObjectKey("", "PersistentVolume", "", name)
        found = self.store.get(key)
        if found is not None and found["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            self.store.remove(key)
