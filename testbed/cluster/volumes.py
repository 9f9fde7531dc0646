"""Volumes for claims of the testbed's storage class.

A provisioner is a program of its own in a real cluster; here it is two rules. A claim that waits gets a volume made for it, which the
real volume controller then binds; a volume whose claim is gone is removed.
"""

from typing import Any

from testbed.cluster.objects import PROVISIONER, STORAGE_CLASS

Document = dict[str, Any]


def volume_for(claim: Document) -> Document | None:
    """Render the volume a claim waits for; None when it waits for none of ours."""
    waiting = claim.get("status", {}).get("phase") == "Pending" and not claim["spec"].get("volumeName")
    if not waiting or claim["spec"].get("storageClassName") != STORAGE_CLASS or claim["metadata"].get("deletionTimestamp"):
        return None
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
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
            # Nothing is ever mounted: pods on simulated nodes have no processes.
            "hostPath": {"path": f"/var/lib/testbed/{metadata['uid']}"},
        },
    }


def is_spent(volume: Document) -> bool:
    """Whether a volume of ours has lost its claim for good."""
    ours = volume["metadata"].get("annotations", {}).get("pv.kubernetes.io/provisioned-by") == PROVISIONER
    return ours and volume.get("status", {}).get("phase") in ("Released", "Failed") and not volume["metadata"].get("deletionTimestamp")
