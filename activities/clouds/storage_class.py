"""The StorageClass for caches: each cloud has a driver for volumes that many nodes mount."""

from collections.abc import Mapping

from activities.clouds.graph import Parameters, Value
from api_types.labels import MANAGED_BY, MANAGED_BY_VALUE

RESTART = "restart"
"""The operation of a call that has pods of a driver start anew which started before they had an identity at the cloud."""


def storage_class(name: str, provisioner: str, parameters: Mapping[str, Value], *, expandable: bool) -> Parameters:
    """Give the manifest of a StorageClass whose volumes are made as soon as they are claimed."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "labels": {MANAGED_BY: MANAGED_BY_VALUE}},
        "provisioner": provisioner,
        "parameters": parameters,
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": expandable,
        "reclaimPolicy": "Delete",
    }
