"""Queries to other entities from a workflow.

To some that are known; or to all of some kinds, page by page, so that no answer outgrows a payload.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult
from workflows.entity.calls.sending import call_entities


async def query_each(workflow_ids: Iterable[str], query: str, summary: str) -> SurveyResult:
    """Send the same query to some entities; one that does not run has no answer and is not unresponsive."""
    left, answers, unresponsive = sorted(workflow_ids), dict[str, Any](), dict[str, str]()
    while left:
        result = await call_entities(EntityClient.query_each, QueryEach(workflow_ids=left, query=query), summary)
        answers, unresponsive, left = answers | result.answers, unresponsive | result.unresponsive, list(result.left)
    return SurveyResult(answers=answers, unresponsive=unresponsive)


async def query_pages(survey: Survey, summary: str) -> AsyncIterator[SurveyResult]:
    """Give every page of a survey; what one page changes is known before the next one is queried."""
    while True:
        page = await call_entities(EntityClient.survey, survey, summary)
        yield page
        if not page.after and not page.left:
            return
        survey = survey.model_copy(update={"after": page.after, "left": page.left})
