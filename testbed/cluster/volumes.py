"""Volumes for claims of the testbed's storage class.

The testbed replaces the provisioner of a real cluster with two rules. A pending claim
gets a volume, which the real volume controller then binds. A volume is deleted when its
claim is gone.
"""

from typing import Any

from testbed.cluster.objects import PROVISIONER, STORAGE_CLASS

Document = dict[str, Any]


def volume_for(claim: Document) -> Document | None:
    """Render the volume that a claim waits for.

    Return None if the claim does not wait for a volume of the testbed.
    """
    waiting = claim.get("status", {}).get("phase") == "Pending" and not claim[
        "spec"
    ].get("volumeName")
    if (
        not waiting
        or claim["spec"].get("storageClassName") != STORAGE_CLASS
        or claim["metadata"].get("deletionTimestamp")
    ):
        return None
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{metadata['uid']}",
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "volumeMode": claim["spec"].get("volumeMode", "Filesystem"),
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            # Nothing is mounted: pods on simulated nodes have no processes.
            "hostPath": {"path": f"/var/lib/testbed/{metadata['uid']}"},
        },
    }


def is_spent(volume: Document) -> bool:
    """Return whether the claim of a testbed volume is gone for good."""
    ours = (
        volume["metadata"].get("annotations", {}).get("pv.kubernetes.io/provisioned-by")
        == PROVISIONER
    )
    return (
        ours
        and volume.get("status", {}).get("phase") in ("Released", "Failed")
        and not volume["metadata"].get("deletionTimestamp")
    )
