"""The survey of a namespace by a directory that starts without state.

Either the directory is the first of its namespace, or its state was lost. If it sent a
list before it knew every endpoint, routes would lose the unknown endpoints.
"""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow

from activities.messaging.messages import Survey
from api_types.messages.routing import EndpointReport, ServiceReport
from workflows.endpoint_directory.directory import Directory
from workflows.entity.calls.querying import query_each, query_pages

# Owners and services answer these queries with their reports, or with None.
ENDPOINT_QUERY = "endpoint_report"
SERVICE_QUERY = "service_report"
_OWNERS = ["ModelReplica", "ModelEndpoint"]
_SERVICES = ["ModelService"]
# Entities without a worker do not answer. They are queried until they answer or no
# longer exist.
_PAUSE = timedelta(seconds=5)


async def survey(namespace: str, directory: Directory) -> None:
    """Read the reports of all owners, then the reports of all services."""
    async for answer in _answers(_OWNERS, ENDPOINT_QUERY, namespace):
        try:
            directory.report_endpoint(EndpointReport.model_validate(answer))
        except ValidationError:
            workflow.logger.exception("the report of an owner could not be read")
    async for answer in _answers(_SERVICES, SERVICE_QUERY, namespace):
        try:
            directory.report_service(ServiceReport.model_validate(answer))
        except ValidationError:
            workflow.logger.exception("the report of a service could not be read")


async def _answers(kinds: list[str], query: str, namespace: str) -> Any:
    summary = f"read the reports of {' and '.join(kinds)} in {namespace}"
    unresponsive: list[str] = []
    async for page in query_pages(
        Survey(kinds=kinds, namespace=namespace, query=query), summary
    ):
        unresponsive += page.unresponsive
        for workflow_id in sorted(page.answers):
            if page.answers[workflow_id] is not None:
                yield page.answers[workflow_id]
    while unresponsive:
        await workflow.sleep(
            _PAUSE, summary=f"wait for {len(unresponsive)} silent entities"
        )
        result = await query_each(unresponsive, query, summary)
        unresponsive = sorted(result.unresponsive)
        for workflow_id in sorted(result.answers):
            if result.answers[workflow_id] is not None:
                yield result.answers[workflow_id]
