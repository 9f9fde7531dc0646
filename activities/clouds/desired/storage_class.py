"""The StorageClass for caches, whose volumes many nodes can mount."""

from collections.abc import Mapping

from activities.clouds.desired.graph import Parameters, Value
from api_types.labels import MANAGED_BY, MANAGED_BY_VALUE

RESTART = "restart"
"""The operation that restarts those pods of a driver that started without a cloud
identity.
"""


def storage_class(
    name: str, provisioner: str, parameters: Mapping[str, Value], *, expandable: bool
) -> Parameters:
    """Return the manifest of a StorageClass with immediate volume binding."""
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
