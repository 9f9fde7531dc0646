"""The owner of a cluster's serving stack.

Two control planes, or two InferenceClusters, may refer to one cluster. The namespace of
the gateway has the mark of the stack's owner, and another InferenceCluster changes
nothing. The mark contains a uid, so an InferenceCluster that was lost and applied again
does not take over by itself: the stack may belong to another InferenceCluster of the
same name.
"""

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.kinds import NAMESPACE
from activities.cluster_objects.ownership import ObjectOwner, owner_of
from api_types import labels
from api_types.errors import NameConflict

KIND = "InferenceCluster"
RELEASE_CONFLICT = "ReleaseConflict"
MARK = ObjectId(NAMESPACE, "", labels.SYSTEM_NAMESPACE)
_NOBODY = ("", "", "", "")


async def check_mark(cluster: ClusterApi, name: str, uid: str) -> Json | None:
    """Return the namespace that has the mark, or None if it does not exist.

    Raises NameConflict if the mark names another owner.
    """
    found = await cluster.get(MARK)
    if found and (problem := _mark_problem(found, name, uid)):
        raise NameConflict(problem, RELEASE_CONFLICT)
    return found


async def taken_over(cluster: ClusterApi, name: str, uid: str) -> str:
    """Return which other owner the mark names, or an empty string.

    An empty `uid`, as on the control cluster, skips the check.
    """
    found = await cluster.get(MARK) if uid else None
    return _mark_problem(found, name, uid) if found else ""


def is_marked(namespace: Json | None, uid: str) -> bool:
    return namespace is not None and owner_of(namespace).uid == uid


def _mark_problem(namespace: Json, name: str, uid: str) -> str:
    owner = owner_of(namespace)
    if owner in (_NOBODY, ObjectOwner(KIND, "", name, uid)):
        return ""
    if (owner.kind, owner.name) != (KIND, name):
        return (
            f"the serving stack of the cluster belongs to {owner}: delete that "
            f"{owner.kind} first, or annotate this one {labels.STACK}: external"
        )
    return (
        f"the serving stack of the cluster belongs to {owner}, which is an earlier "
        f"{KIND} of this name or belongs to another control plane. If it is yours, have "
        "an administrator of the cluster run: kubectl annotate --overwrite namespace "
        f"{MARK.name} {labels.OWNER_UID}={uid}"
    )


def object_conflict(found: Json, name: str, uid: str) -> str:
    """Return why an object of the stack may not be written, or an empty string.

    Call this only while the mark names this owner. An object with the same name and
    another uid belongs to an earlier InferenceCluster, and was taken over with the
    mark.
    """
    owner = owner_of(found)
    if owner.uid == uid or (owner.kind, owner.name) == (KIND, name):
        return ""
    return f"{ObjectId.of(found)} exists already and belongs to {owner}"
