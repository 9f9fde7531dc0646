"""Find services and endpoints that may have lost all their control cluster objects."""

from collections.abc import AsyncIterator
from typing import Any

from activities.cluster_objects.ownership import ObjectOwner
from activities.watching.absent import Search, owners_of_others
from api_types.messages.routing import EndpointReport, ServiceReport

_SERVICE = "ModelService"
_ENDPOINT_OWNERS = ("ModelReplica", "ModelEndpoint")


def find_absent(here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
    """Yield the owners that are not among `here`.

    They are found by their reports to the directories of their namespaces. A
    notification has no effect on an owner that has no objects and needs none.
    """
    endpoints = [
        Search(kind, "endpoint_report", _owner_of_endpoint) for kind in _ENDPOINT_OWNERS
    ]
    return owners_of_others(
        [Search(_SERVICE, "service_report", _service), *endpoints], here
    )


def _service(workflow_id: str, answer: Any) -> ObjectOwner | None:
    if answer is None:
        return None
    service = ServiceReport.model_validate(answer)
    return ObjectOwner(_SERVICE, _namespace(workflow_id), service.name, service.uid)


def _owner_of_endpoint(workflow_id: str, answer: Any) -> ObjectOwner | None:
    endpoint = None if answer is None else EndpointReport.model_validate(answer)
    # A withdrawn endpoint has no objects. A suspended endpoint has its backend.
    if endpoint is None or endpoint.endpoint is None:
        return None
    return ObjectOwner(
        endpoint.owner, _namespace(workflow_id), endpoint.name, endpoint.uid
    )


def _namespace(workflow_id: str) -> str:
    _, namespace, _ = workflow_id.split("/")
    return namespace
