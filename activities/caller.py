"""Checks that the workflow of an activity owns the object that the activity changes.

A user who can start workflows can call any activity with any arguments. The workflow id
in the activity's info comes from the Temporal server, so it can be trusted.
"""

from typing import NamedTuple

from temporalio import activity

from api_types import names
from api_types.errors import PermissionDenied


class Caller(NamedTuple):
    """The object whose workflow called the activity.

    Cluster-scoped kinds have no namespace.
    """

    namespace: str
    name: str


def caller_of(kind: str) -> Caller:
    """Return the object of this kind whose workflow called the activity.

    Raises PermissionDenied if the calling workflow belongs to another kind.
    """
    asked_by = activity.info().workflow_id or ""
    namespace, _, name = asked_by.partition("/")[2].rpartition("/")
    found = Caller(namespace, name)
    if not name or asked_by != names.workflow_id(kind, *found):
        raise PermissionDenied(
            f"workflow {asked_by} may not call this activity: only a {kind} may"
        )
    return found


def check_caller(kind: str, namespace: str, name: str = "") -> None:
    """Raise PermissionDenied unless the calling workflow owns the given object.

    Without `name`, only the namespace is compared.
    """
    caller = caller_of(kind)
    if caller != (namespace, name or caller.name):
        own = "/".join(filter(None, caller))
        other = "/".join(filter(None, (namespace, name)))
        raise PermissionDenied(f"{kind} {own} may not act for {other}")
