"""Querying all running entities of some kinds from a workflow: page by page, so that no answer outgrows a payload."""

from collections.abc import AsyncIterator

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import Survey, SurveyResult
from workflows.entity import activity_options


async def query_pages(survey: Survey, summary: str) -> AsyncIterator[SurveyResult]:
    """Give every page of a survey; what one page changes is known before the next one is queried."""
    while True:
        page = await workflow.execute_activity_method(
            EntityClient.survey, survey, **activity_options.remote(activity_options.ENTITY_BATCH, summary)
        )
        yield page
        if not page.after:
            return
        survey = survey.model_copy(update={"after": page.after})
