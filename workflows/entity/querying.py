"""Queries to other entities from a workflow.

To some that are known; or to all of some kinds, page by page, so that no answer outgrows a payload.
"""

from collections.abc import AsyncIterator, Iterable

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult
from workflows.entity.sending import call_entities


async def query_each(workflow_ids: Iterable[str], query: str, summary: str) -> SurveyResult:
    """Send the same query to some entities; one that does not run has no answer and is not unresponsive."""
    return await call_entities(EntityClient.query_each, QueryEach(workflow_ids=sorted(workflow_ids), query=query), summary)


async def query_pages(survey: Survey, summary: str) -> AsyncIterator[SurveyResult]:
    """Give every page of a survey; what one page changes is known before the next one is queried."""
    while True:
        page = await call_entities(EntityClient.survey, survey, summary)
        yield page
        if not page.after:
            return
        survey = survey.model_copy(update={"after": page.after})
