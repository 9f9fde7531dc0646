"""Whose work an activity does: that of the object whose workflow asked for it.

Whoever may start workflows of their own can order any activity, with anything in the order. Which workflow asks is said by the server.
"""

from typing import NamedTuple

from temporalio import activity

from api_types import names
from api_types.errors import PermissionDenied


class Caller(NamedTuple):
    """The object whose workflow asked; the namespace of a cluster-scoped kind is empty."""

    namespace: str
    name: str


def caller_of(kind: str) -> Caller:
    """Give the object of this kind whose workflow asked. Raises PermissionDenied if none did."""
    asked_by = activity.info().workflow_id or ""
    namespace, _, name = asked_by.partition("/")[2].rpartition("/")
    found = Caller(namespace, name)
    if not name or asked_by != names.workflow_id(kind, *found):
        raise PermissionDenied(f"workflow {asked_by} may not order this: only a {kind} does")
    return found


def check_caller(kind: str, namespace: str, name: str = "") -> None:
    """Check that an order is that of the object whose workflow asked; one without a name says at least its namespace.

    Raises PermissionDenied.
    """
    asked_by = caller_of(kind)
    if asked_by != (namespace, name or asked_by.name):
        raise PermissionDenied(
            f"{kind} {'/'.join(filter(None, asked_by))} may not order what is of {'/'.join(filter(None, (namespace, name)))}"
        )
