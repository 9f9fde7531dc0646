"""The search attributes and the memo of entities.

Visibility uses the search attributes to find entities. Readers get both without a
query.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)

KIND = SearchAttributeKey.for_keyword("ModelplaneKind")
NAMESPACE = SearchAttributeKey.for_keyword("ModelplaneNamespace")
NAME = SearchAttributeKey.for_keyword("ModelplaneName")
PHASE = SearchAttributeKey.for_keyword("ModelplanePhase")
READY = SearchAttributeKey.for_keyword("ModelplaneReady")
CLUSTER = SearchAttributeKey.for_keyword("ModelplaneCluster")
DEPLOYMENT = SearchAttributeKey.for_keyword("ModelplaneDeployment")
# The resource version of the object: microseconds since 1970 at its last change.
# Programs that follow changes search for greater versions.
VERSION = SearchAttributeKey.for_int("ModelplaneVersion")

SEARCH_ATTRIBUTES = (KIND, NAMESPACE, NAME, PHASE, READY, CLUSTER, DEPLOYMENT, VERSION)

# The memo in which an InferenceCluster publishes data that its replicas read.
CONNECTION_MEMO = "connection"
# The memo with the phase and readiness with which a workflow was started. A workflow
# cannot read them from its search attributes: the server maps their names with its own
# list, and leaves out names that are not in the list yet. In the first seconds of a
# namespace a workflow may see no search attributes, and see all of them when it is
# replayed.
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
    """Return the options `search_attributes` and `memo` for the start of an entity.

    `phase` and `ready` should be the values that its first task computes, because each
    change is another record that visibility has to write.
    """
    values = {
        KIND: kind,
        NAME: name,
        NAMESPACE: namespace,
        PHASE: phase,
        READY: ready,
        CLUSTER: cluster,
        DEPLOYMENT: deployment,
    }
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(key, value) for key, value in values.items() if value
    ]
    return {
        "search_attributes": TypedSearchAttributes(pairs),
        "memo": {PUBLISHED_MEMO: [phase, ready], **(memo or {})},
    }


# The statuses of workflows that did not complete by themselves.
_ENDED = '"Terminated", "Failed", "TimedOut", "Canceled"'


def visibility_query(
    kinds: Sequence[str],
    *,
    namespace: str = "",
    cluster: str = "",
    deployment: str = "",
    ended: bool = False,
) -> str:
    """Return the list filter for running entities.

    With `ended` it also selects entities that did not complete by themselves.
    """
    status = (
        f'ExecutionStatus IN ("Running", {_ENDED})'
        if ended
        else 'ExecutionStatus = "Running"'
    )
    terms = [
        status,
        "ModelplaneKind IN (" + ", ".join(f'"{kind}"' for kind in kinds) + ")",
    ]
    for key, value in (
        (NAMESPACE, namespace),
        (CLUSTER, cluster),
        (DEPLOYMENT, deployment),
    ):
        if value:
            terms.append(f'{key.name} = "{value}"')
    return " AND ".join(terms)


def unknown_query(kind: str) -> str:
    """Return the list filter for running entities of a kind whose `Ready` is Unknown."""
    return f'{visibility_query([kind])} AND {READY.name} = "Unknown"'


def changed_query(kinds: Sequence[str], version: int) -> str:
    """Return the list filter for running entities that changed after a version."""
    return f"{visibility_query(kinds)} AND {VERSION.name} > {version}"


def gone_query(kinds: Sequence[str], after: str) -> str:
    """Return the list filter for entities whose workflow closed after a time.

    Workflows that continue in another run are not selected.
    """
    names = ", ".join(f'"{kind}"' for kind in kinds)
    return (
        f'ExecutionStatus IN ("Completed", {_ENDED}) AND ModelplaneKind IN ({names}) '
        f'AND CloseTime >= "{after}"'
    )


def closed_query(kind: str, after: str) -> str:
    """Return the list filter for entities of a kind that ended early since a time."""
    return (
        f'ExecutionStatus IN ({_ENDED}) AND ModelplaneKind = "{kind}" '
        f'AND CloseTime > "{after}"'
    )


def ended_runs_query(workflow_id: str) -> str:
    """Return the list filter for the runs of one entity that did not complete."""
    return f'ExecutionStatus IN ({_ENDED}) AND WorkflowId = "{workflow_id}"'
