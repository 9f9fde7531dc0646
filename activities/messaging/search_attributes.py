"""The search attributes and the memo of entities: how visibility finds them, and what is read of them without a query."""

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

KIND = SearchAttributeKey.for_keyword("ModelplaneKind")
NAMESPACE = SearchAttributeKey.for_keyword("ModelplaneNamespace")
NAME = SearchAttributeKey.for_keyword("ModelplaneName")
PHASE = SearchAttributeKey.for_keyword("ModelplanePhase")
READY = SearchAttributeKey.for_keyword("ModelplaneReady")
CLUSTER = SearchAttributeKey.for_keyword("ModelplaneCluster")
DEPLOYMENT = SearchAttributeKey.for_keyword("ModelplaneDeployment")
# The resource version of the object: microseconds since 1970 when it last changed. Whoever follows changes asks for greater ones.
VERSION = SearchAttributeKey.for_int("ModelplaneVersion")

SEARCH_ATTRIBUTES = (KIND, NAMESPACE, NAME, PHASE, READY, CLUSTER, DEPLOYMENT, VERSION)

# The memo in which an InferenceCluster keeps what its replicas read of it.
CONNECTION_MEMO = "connection"
# The memo that tells a workflow with which phase and readiness it was started. It cannot read that from its search attributes: the server
# translates their names with a list of its own, and leaves out what that does not have yet. In the first seconds of a namespace a workflow
# may see none, and all of them when it is replayed.
PUBLISHED_MEMO = "published"


def identity_at_start(
    kind: str,
    namespace: str,
    name: str,
    *,
    phase: str = "Progressing",
    ready: str = "False",
    cluster: str = "",
    deployment: str = "",
    memo: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Give the options `search_attributes` and `memo` with which an entity is started.

    `phase` and `ready` are best what its first task finds: each change is one more record that visibility has to write.
    """
    values = {KIND: kind, NAME: name, NAMESPACE: namespace, PHASE: phase, READY: ready, CLUSTER: cluster, DEPLOYMENT: deployment}
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(key, value) for key, value in values.items() if value]
    return {"search_attributes": TypedSearchAttributes(pairs), "memo": {PUBLISHED_MEMO: [phase, ready], **(memo or {})}}


# How a workflow is closed that did not end by itself.
_ENDED = '"Terminated", "Failed", "TimedOut", "Canceled"'


def visibility_query(kinds: Sequence[str], *, namespace: str = "", cluster: str = "", deployment: str = "", ended: bool = False) -> str:
    """Write the list filter for running entities; with `ended` also for those that did not end by themselves."""
    status = f'ExecutionStatus IN ("Running", {_ENDED})' if ended else 'ExecutionStatus = "Running"'
    terms = [status, "ModelplaneKind IN (" + ", ".join(f'"{kind}"' for kind in kinds) + ")"]
    for key, value in ((NAMESPACE, namespace), (CLUSTER, cluster), (DEPLOYMENT, deployment)):
        if value:
            terms.append(f'{key.name} = "{value}"')
    return " AND ".join(terms)


def changed_query(kinds: Sequence[str], version: int) -> str:
    """Write the list filter for running entities that changed after a resource version."""
    return f"{visibility_query(kinds)} AND {VERSION.name} > {version}"


def gone_query(kinds: Sequence[str], after: str) -> str:
    """Write the list filter for entities whose workflow was closed after a moment, and not to go on in another run."""
    names = ", ".join(f'"{kind}"' for kind in kinds)
    return f'ExecutionStatus IN ("Completed", {_ENDED}) AND ModelplaneKind IN ({names}) AND CloseTime >= "{after}"'


def closed_query(kind: str, after: str) -> str:
    """Write the list filter for entities of a kind that did not end by themselves, since a moment."""
    return f'ExecutionStatus IN ({_ENDED}) AND ModelplaneKind = "{kind}" AND CloseTime > "{after}"'


def ended_runs_query(workflow_id: str) -> str:
    """Write the list filter for the runs of one entity that did not end by themselves."""
    return f'ExecutionStatus IN ({_ENDED}) AND WorkflowId = "{workflow_id}"'
