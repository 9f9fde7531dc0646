"""Queries to other entities from a workflow.

A query goes to a list of entities, or to all entities of some kinds page by page, so
that no answer outgrows a payload.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult
from workflows.entity.calls.sending import call_entities


async def query_each(
    workflow_ids: Iterable[str], query: str, summary: str
) -> SurveyResult:
    """Send the same query to some entities.

    An entity that does not run has no answer and is not unresponsive.
    """
    left, answers, unresponsive = (
        sorted(workflow_ids),
        dict[str, Any](),
        dict[str, str](),
    )
    while left:
        result = await call_entities(
            EntityClient.query_each, QueryEach(workflow_ids=left, query=query), summary
        )
        answers, unresponsive, left = (
            answers | result.answers,
            unresponsive | result.unresponsive,
            list(result.left),
        )
    return SurveyResult(answers=answers, unresponsive=unresponsive)


async def query_pages(survey: Survey, summary: str) -> AsyncIterator[SurveyResult]:
    """Yield every page of a survey.

    Each page is queried after the caller has processed the previous one.
    """
    while True:
        page = await call_entities(EntityClient.survey, survey, summary)
        yield page
        if not page.after and not page.left:
            return
        survey = survey.model_copy(update={"after": page.after, "left": page.left})
