"""What a directory that starts without state asks its namespace: which endpoints there are, and which services.

It may be the first of its namespace, or one whose state was lost. A list that it sent before it knew every endpoint would take those that
it does not know out of routes that have them.
"""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow

from activities.messaging.messages import Survey
from api_types.messages.routing import EndpointReport, ServiceReport
from workflows.endpoint_directory.directory import Directory
from workflows.entity.calls.querying import query_each, query_pages

# Queries that owners and services answer with what they would report; None if that is nothing.
ENDPOINT_QUERY = "endpoint_report"
SERVICE_QUERY = "service_report"
_OWNERS = ["ModelReplica", "ModelEndpoint"]
_SERVICES = ["ModelService"]
# Entities without a worker do not answer; they are asked until they do, or are gone.
_PAUSE = timedelta(seconds=5)


async def survey(namespace: str, directory: Directory) -> None:
    """Read the reports of all owners, then those of all services."""
    async for answer in _answers(_OWNERS, ENDPOINT_QUERY, namespace):
        try:
            directory.report_endpoint(EndpointReport.model_validate(answer))
        except ValidationError:
            workflow.logger.exception("the endpoint of an owner could not be read")
    async for answer in _answers(_SERVICES, SERVICE_QUERY, namespace):
        try:
            directory.report_service(ServiceReport.model_validate(answer))
        except ValidationError:
            workflow.logger.exception("what a service selects could not be read")


async def _answers(kinds: list[str], query: str, namespace: str) -> Any:
    summary = f"read what {' and '.join(kinds)} of {namespace} report"
    unresponsive: list[str] = []
    async for page in query_pages(Survey(kinds=kinds, namespace=namespace, query=query), summary):
        unresponsive += page.unresponsive
        for workflow_id in sorted(page.answers):
            if page.answers[workflow_id] is not None:
                yield page.answers[workflow_id]
    while unresponsive:
        await workflow.sleep(_PAUSE, summary=f"wait for {len(unresponsive)} that did not answer")
        result = await query_each(unresponsive, query, summary)
        unresponsive = sorted(result.unresponsive)
        for workflow_id in sorted(result.answers):
            if result.answers[workflow_id] is not None:
                yield result.answers[workflow_id]
