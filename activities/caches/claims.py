"""Volume claims of caches: their storage class, and the fields that cannot change."""

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.observe.cache import BOUND
from activities.render.cache.artifact import read_volume
from api_types.errors import ServerError, StorageClassMissing
from api_types.messages.caches import ApplyCache
from api_types.text.quantity import parse_quantity


async def _has_class(cluster: ClusterApi, name: str) -> bool:
    return await cluster.get(ObjectId(kinds.STORAGE_CLASS, "", name)) is not None


async def can_never_bind(cluster: ClusterApi, volume: Json, class_name: str) -> bool:
    """Return whether an unbound claim has a missing class other than the ordered one.

    The class of a claim is immutable, so the claim must be replaced. It has no volume
    that could be lost.
    """
    held = str(volume["spec"].get("storageClassName", ""))
    if _is_bound(volume) or not class_name or held in ("", class_name):
        return False
    return not await _has_class(cluster, held)


async def check_storage_class(
    cluster: ClusterApi, order: ApplyCache, volume: Json | None
) -> None:
    """Raise StorageClassMissing if an unbound claim has a class that does not exist."""
    wanted = (
        str(volume["spec"].get("storageClassName", ""))
        if volume
        else order.storage_class_name
    )
    if (
        not wanted
        or (volume and _is_bound(volume))
        or await _has_class(cluster, wanted)
    ):
        return
    named_by_cache = bool(read_volume(order.spec).storage_class)
    field = (
        "spec.volume.storageClassName of the ModelCache"
        if named_by_cache
        else "spec.cluster.existing.cache of the InferenceCluster"
    )
    raise StorageClassMissing(
        f"cluster {order.cluster} has no StorageClass {wanted}: create it there, or set "
        f"{field} to an existing one (volumes made by hand need a class with "
        "provisioner kubernetes.io/no-provisioner)"
    )


def _is_bound(volume: Json) -> bool:
    """Return whether a claim has or had a volume. A `Lost` claim had one."""
    return (
        bool(volume["spec"].get("volumeName"))
        or (volume.get("status") or {}).get("phase", "Pending") != "Pending"
    )


async def immutable_fields(
    cluster: ClusterApi,
    volume: Json | None,
    size_gib: int,
    class_name: str,
    access_mode: str,
) -> tuple[Json, list[str]]:
    """Return the fields that an existing volume must keep, and warnings.

    The keys are fields of `CacheInput`. The storage class and the access mode of a
    claim are immutable. Its size is immutable where the class does not allow expansion.
    The API server would reject a claim that changes them.
    """
    if volume is None:
        return {}, []
    spec = volume["spec"]
    kept: Json = {
        "volume_class": spec.get("storageClassName", ""),
        "volume_access": spec["accessModes"][0],
    }
    warnings: list[str] = []
    if class_name and kept["volume_class"] != class_name:
        warnings.append(
            f"the volume keeps storage class {kept['volume_class']}; "
            f"{class_name} is used from the next artifact on"
        )
    if kept["volume_access"] != access_mode:
        warnings.append(
            f"the volume keeps access mode {kept['volume_access']}; "
            f"{access_mode} is used from the next artifact on"
        )
    phase = (volume.get("status") or {}).get("phase", "Pending")
    # The server normalizes quantities (`1024Gi` becomes `1Ti`), so compare parsed
    # values.
    held, wanted = str(spec["resources"]["requests"]["storage"]), f"{size_gib}Gi"
    growth = parse_quantity(wanted) - parse_quantity(held)
    if growth > 0 and phase != BOUND:
        # Only bound claims can be expanded.
        raise ServerError(
            f"volume claim {volume['metadata']['name']} is {phase}: "
            f"it can be expanded to {wanted} when it is Bound"
        )
    if growth > 0:
        storage_class = await cluster.get(
            ObjectId(kinds.STORAGE_CLASS, "", kept["volume_class"])
        )
        if not (storage_class or {}).get("allowVolumeExpansion"):
            kept["volume_size"] = held
            warnings.append(
                f"ExpansionUnsupported: storage class {kept['volume_class']} "
                f"does not allow expansion, the volume keeps {held}"
            )
    elif growth < 0:
        kept["volume_size"] = held
    return kept, warnings
