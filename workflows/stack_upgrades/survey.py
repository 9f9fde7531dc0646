"""What a StackUpgrades that starts without state asks the clusters: which of them upgrade, and which wait for that.

It may be the first one, or one whose state was lost. A turn that it gave before it knew who upgrades would be one too many.
"""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow

from activities.messaging.messages import Survey
from api_types.messages.signals import InferenceClusterSignals
from api_types.messages.upgrades import UpgradeRequest
from workflows.entity.arguments import UnusableMessage
from workflows.entity.calls.querying import query_each, query_pages
from workflows.entity.timers.steady_time import SteadyTime
from workflows.stack_upgrades.turns import Turns

# A query that a cluster answers with what it would ask; None if that is nothing.
UPGRADE_QUERY = "upgrade_request"
_SUMMARY = "read which clusters upgrade their stacks"
# Clusters without a worker do not answer. After ten minutes turns are given all the same: one of them must not stop all others for ever.
_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (2, 5, 10, 20, 40, 80, 160, 300))


async def survey(turns: Turns, time: SteadyTime) -> None:
    """Note the requests of all clusters."""
    unresponsive: list[str] = []
    async for page in query_pages(Survey(kinds=[InferenceClusterSignals.kind], query=UPGRADE_QUERY), _SUMMARY):
        unresponsive += page.unresponsive
        _note(turns, page.answers, time)
    for pause in _PAUSES:
        if not unresponsive:
            return
        await workflow.sleep(pause, summary=f"wait for {len(unresponsive)} that did not answer")
        result = await query_each(unresponsive, UPGRADE_QUERY, _SUMMARY)
        unresponsive = sorted(result.unresponsive)
        _note(turns, result.answers, time)


def _note(turns: Turns, answers: dict[str, Any], time: SteadyTime) -> None:
    for workflow_id in sorted(answers):
        if answers[workflow_id] is None:
            continue
        try:
            turns.request(UpgradeRequest.model_validate(answers[workflow_id]), time.now())
        except (ValidationError, UnusableMessage):
            workflow.logger.exception("what a cluster wants could not be read")
