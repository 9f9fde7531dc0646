"""The search attributes and the memo of entities: how visibility finds them, and what is read of them without a query."""

from collections.abc import Sequence
from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

KIND = SearchAttributeKey.for_keyword("ModelplaneKind")
NAMESPACE = SearchAttributeKey.for_keyword("ModelplaneNamespace")
NAME = SearchAttributeKey.for_keyword("ModelplaneName")
PHASE = SearchAttributeKey.for_keyword("ModelplanePhase")
READY = SearchAttributeKey.for_keyword("ModelplaneReady")
CLUSTER = SearchAttributeKey.for_keyword("ModelplaneCluster")
DEPLOYMENT = SearchAttributeKey.for_keyword("ModelplaneDeployment")

SEARCH_ATTRIBUTES = (KIND, NAMESPACE, NAME, PHASE, READY, CLUSTER, DEPLOYMENT)

# The memo in which an InferenceCluster keeps what its replicas read of it.
CONNECTION_MEMO = "connection"


def attributes_of(
    kind: str, namespace: str, name: str, *, phase: str = "Progressing", ready: str = "False", cluster: str = "", deployment: str = ""
) -> TypedSearchAttributes:
    """Give the search attributes with which an entity is started.

    `phase` and `ready` are best what its first task finds: each change is one more record that visibility has to write.
    """
    values = {KIND: kind, NAME: name, NAMESPACE: namespace, PHASE: phase, READY: ready, CLUSTER: cluster, DEPLOYMENT: deployment}
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(key, value) for key, value in values.items() if value]
    return TypedSearchAttributes(pairs)


def visibility_query(kinds: Sequence[str], *, namespace: str = "", cluster: str = "", deployment: str = "") -> str:
    """Write the list filter for running entities."""
    terms = ['ExecutionStatus = "Running"', "ModelplaneKind IN (" + ", ".join(f'"{kind}"' for kind in kinds) + ")"]
    for key, value in ((NAMESPACE, namespace), (CLUSTER, cluster), (DEPLOYMENT, deployment)):
        if value:
            terms.append(f'{key.name} = "{value}"')
    return " AND ".join(terms)


def closed_query(kind: str, after: str) -> str:
    """Write the list filter for entities of a kind that did not end by themselves, since a moment."""
    return f'ExecutionStatus IN ("Terminated", "Failed", "TimedOut", "Canceled") AND ModelplaneKind = "{kind}" AND CloseTime > "{after}"'
