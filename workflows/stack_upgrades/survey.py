"""The survey of clusters by a StackUpgrades that starts without state.

Either this is the first StackUpgrades, or its state was lost. If it granted a turn
before it knew which clusters upgrade, too many clusters would upgrade at once.
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
from workflows.stack_upgrades.turns import UpgradeTurns

# A cluster answers this query with its request, or with None.
UPGRADE_QUERY = "upgrade_request"
_SUMMARY = "read which clusters upgrade their stacks"
# Clusters without a worker do not answer. After ten minutes turns are granted anyway,
# because one silent cluster must not block all others.
_PAUSES = tuple(
    timedelta(seconds=seconds) for seconds in (2, 5, 10, 20, 40, 80, 160, 300)
)


async def survey(turns: UpgradeTurns, time: SteadyTime) -> None:
    """Record the requests of all clusters."""
    unresponsive: list[str] = []
    async for page in query_pages(
        Survey(kinds=[InferenceClusterSignals.kind], query=UPGRADE_QUERY), _SUMMARY
    ):
        unresponsive += page.unresponsive
        _note(turns, page.answers, time)
    for pause in _PAUSES:
        if not unresponsive:
            return
        await workflow.sleep(
            pause, summary=f"wait for {len(unresponsive)} silent clusters"
        )
        result = await query_each(unresponsive, UPGRADE_QUERY, _SUMMARY)
        unresponsive = sorted(result.unresponsive)
        _note(turns, result.answers, time)


def _note(turns: UpgradeTurns, answers: dict[str, Any], time: SteadyTime) -> None:
    for workflow_id in sorted(answers):
        if answers[workflow_id] is None:
            continue
        try:
            turns.request(
                UpgradeRequest.model_validate(answers[workflow_id]), time.now()
            )
        except (ValidationError, UnusableMessage):
            workflow.logger.exception("the request of a cluster could not be read")
