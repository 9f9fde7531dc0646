"""Find the services and endpoints that may have lost all that they had on the control cluster."""

from collections.abc import AsyncIterator

from activities.cluster_objects.ownership import Owner
from activities.watching.absent import answers_of_others
from api_types.messages.routing import EndpointReport, ServiceReport

_SERVICE = "ModelService"
_ENDPOINT_OWNERS = ["ModelReplica", "ModelEndpoint"]


async def find_absent(here: frozenset[str]) -> AsyncIterator[Owner]:
    """Give those that are not among `here`, by what they report to the directories of their namespaces.

    One that has no objects, and is to have none, is told nothing new.
    """
    async for workflow_id, answer in answers_of_others([_SERVICE], "service_report", here):
        if answer is not None:
            service = ServiceReport.model_validate(answer)
            yield Owner(_SERVICE, _namespace(workflow_id), service.name, service.uid)
    async for workflow_id, answer in answers_of_others(_ENDPOINT_OWNERS, "endpoint_report", here):
        endpoint = None if answer is None else EndpointReport.model_validate(answer)
        # Of one that was withdrawn nothing is to be there. One that is only suspended has its backend.
        if endpoint and endpoint.endpoint:
            yield Owner(endpoint.owner, _namespace(workflow_id), endpoint.name, endpoint.uid)


def _namespace(workflow_id: str) -> str:
    _, namespace, _ = workflow_id.split("/")
    return namespace
