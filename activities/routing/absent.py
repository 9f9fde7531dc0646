"""Find the services and endpoints that may have lost all that they had on the control cluster."""

from collections.abc import AsyncIterator
from typing import Any

from activities.cluster_objects.ownership import Owner
from activities.watching.absent import Search, owners_of_others
from api_types.messages.routing import EndpointReport, ServiceReport

_SERVICE = "ModelService"
_ENDPOINT_OWNERS = ("ModelReplica", "ModelEndpoint")


def find_absent(here: frozenset[str]) -> AsyncIterator[Owner]:
    """Give those that are not among `here`, by what they report to the directories of their namespaces.

    One that has no objects, and is to have none, is told nothing new.
    """
    endpoints = [Search(kind, "endpoint_report", _owner_of_endpoint) for kind in _ENDPOINT_OWNERS]
    return owners_of_others([Search(_SERVICE, "service_report", _service), *endpoints], here)


def _service(workflow_id: str, answer: Any) -> Owner | None:
    if answer is None:
        return None
    service = ServiceReport.model_validate(answer)
    return Owner(_SERVICE, _namespace(workflow_id), service.name, service.uid)


def _owner_of_endpoint(workflow_id: str, answer: Any) -> Owner | None:
    endpoint = None if answer is None else EndpointReport.model_validate(answer)
    # Of one that was withdrawn nothing is to be there. One that is only suspended has its backend.
    if endpoint is None or endpoint.endpoint is None:
        return None
    return Owner(endpoint.owner, _namespace(workflow_id), endpoint.name, endpoint.uid)


def _namespace(workflow_id: str) -> str:
    _, namespace, _ = workflow_id.split("/")
    return namespace
