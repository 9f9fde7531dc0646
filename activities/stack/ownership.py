"""Whose the stack of a cluster is (spec 0.4, 9.1; rulings 10, 77).

Two control planes, or two InferenceClusters, may point at one cluster. The namespace of the gateway carries the mark of the one that has
the stack; whoever comes second changes nothing. The mark names a uid, so that an InferenceCluster which was lost and applied again does not
take over by itself: the stack may be that of another one of the same name.
"""

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.kinds import NAMESPACE
from activities.cluster_objects.ownership import Owner, owner_of
from api_types import labels
from api_types.errors import NameConflict

KIND = "InferenceCluster"
RELEASE_CONFLICT = "ReleaseConflict"
MARK = ObjectId(NAMESPACE, "", labels.SYSTEM_NAMESPACE)
_NOBODY = ("", "", "", "")


async def check_mark(cluster: ClusterApi, name: str, uid: str) -> Json | None:
    """Give the namespace that carries the mark, None if there is none. Raises NameConflict if it is another one's."""
    found = await cluster.get(MARK)
    if found and (problem := _mark_problem(found, name, uid)):
        raise NameConflict(problem, RELEASE_CONFLICT)
    return found


async def taken_over(cluster: ClusterApi, name: str, uid: str) -> str:
    """Say whose the stack has become, as far as the mark tells; empty if nobody else has it, and on the control cluster, without a uid."""
    found = await cluster.get(MARK) if uid else None
    return _mark_problem(found, name, uid) if found else ""


def is_marked(namespace: Json | None, uid: str) -> bool:
    """Tell whether the cluster's stack is already that of the InferenceCluster with this uid."""
    return namespace is not None and owner_of(namespace).uid == uid


def _mark_problem(namespace: Json, name: str, uid: str) -> str:
    owner = owner_of(namespace)
    if owner in (_NOBODY, Owner(KIND, "", name, uid)):
        return ""
    if (owner.kind, owner.name) != (KIND, name):
        return f"the serving stack of the cluster belongs to {owner}: delete that one first, or annotate this one {labels.STACK}: external"
    return (
        f"the serving stack of the cluster belongs to {owner}, an earlier one of this name or one of another control plane. "
        f"If it is yours, "
        f"have an administrator of the cluster run: kubectl annotate --overwrite namespace {MARK.name} {labels.OWNER_UID}={uid}"
    )


def object_conflict(found: Json, name: str, uid: str) -> str:
    """Say why an object of the stack may not be written; empty if it may. Asked only where the mark is ours.

    One that carries the same name and another uid is of an earlier InferenceCluster, whose stack was taken over with the mark.
    """
    owner = owner_of(found)
    if owner.uid == uid or (owner.kind, owner.name) == (KIND, name):
        return ""
    return f"{ObjectId.of(found)} exists already and belongs to {owner}"
