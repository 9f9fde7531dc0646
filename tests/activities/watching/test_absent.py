"""The search for owners without objects, with unresponsive and unreadable workflows.

No server is needed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest

from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.activities import _find_absent
from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult
from activities.routing.absent import find_absent
from activities.watching import absent
from api_types.messages.caches import CacheAccount
from api_types.messages.routing import Endpoint, EndpointReport, ServiceReport
from api_types.messages.scheduling import ReplicaAccount
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_under_test import eventually


def an_endpoint(owner: str, name: str) -> object:
    endpoint = Endpoint(
        name=name, uid="u", labels={}, url="http://10.0.0.1", backend="b"
    )
    return EndpointReport(
        owner=owner, name=name, uid="u", sequence=1, endpoint=endpoint
    ).wire()


SILENT = "no answer"
WORKFLOWS: dict[str, object] = {
    "modelservice/ml/a-silent": SILENT,
    "modelservice/ml/b-odd": {"name": 7},
    "modelservice/c-not-an-id": ServiceReport(name="s", uid="u", sequence=1).wire(),
    "modelservice/ml/s": ServiceReport(name="s", uid="u", sequence=1).wire(),
    "modelendpoint/ml/a-silent": SILENT,
    "modelendpoint/ml/b-odd": {"name": 7},
    "modelendpoint/ml/e": an_endpoint("ModelEndpoint", "e"),
    "modelreplica/ml/a-silent": SILENT,
    "modelreplica/ml/b-odd": {"name": 7},
    "modelreplica/ml/r": an_endpoint("ModelReplica", "r"),
}
ACCOUNTS: dict[str, object] = {
    "modelreplica/ml/a-silent": SILENT,
    "modelreplica/ml/b-odd": {"name": 7},
    "modelreplica/ml/r": ReplicaAccount(
        namespace="ml", name="r", uid="u", cluster="eu", deployment="d", index=0
    ).wire(),
    "modelcache/ml/a-silent": SILENT,
    "modelcache/ml/b-odd": None,
    "modelcache/ml/c": CacheAccount(
        namespace="ml", name="c", uid="u", clusters=["eu"]
    ).wire(),
}


class Workflows:
    """Running workflows, of which some never respond.

    `queried` counts the queries of each, and `waited` are the pauses in seconds.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, object]
    ) -> None:
        self.answers = answers
        self.queried = Counter[str]()
        self.waited: list[float] = []
        monkeypatch.setattr(
            EntityClient, "survey", lambda _, wanted: self.survey(wanted)
        )
        monkeypatch.setattr(
            EntityClient, "query_each", lambda _, wanted: self.query_each(wanted)
        )
        sleep = asyncio.sleep

        async def recorded(seconds: float) -> None:
            if seconds >= absent._RETRY_SECONDS:
                self.waited.append(seconds)
            await sleep(0.001 if seconds >= absent._RETRY_SECONDS else seconds)

        # Replace only that sleep: other code in this loop sleeps too.
        monkeypatch.setattr(
            absent, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": recorded})
        )

    async def survey(self, wanted: Survey) -> SurveyResult:
        kinds = {f"{kind.lower()}/" for kind in wanted.kinds}
        return SurveyResult(
            answers={
                each: None for each in self.answers if any(map(each.startswith, kinds))
            }
        )

    async def query_each(self, wanted: QueryEach) -> SurveyResult:
        self.queried.update(wanted.workflow_ids)
        silent = [each for each in wanted.workflow_ids if self.answers[each] is SILENT]
        return SurveyResult(
            answers={
                each: self.answers[each]
                for each in wanted.workflow_ids
                if each not in silent
            },
            unresponsive=dict.fromkeys(silent, ""),
        )


@pytest.mark.parametrize(
    ("find", "answers", "want"),
    [
        pytest.param(
            find_absent,
            WORKFLOWS,
            [
                ObjectOwner("ModelEndpoint", "ml", "e", "u"),
                ObjectOwner("ModelReplica", "ml", "r", "u"),
                ObjectOwner("ModelService", "ml", "s", "u"),
            ],
            id="control cluster",
        ),
        pytest.param(
            lambda here: _find_absent("eu", here),
            ACCOUNTS,
            [
                ObjectOwner("ModelCache", "ml", "c", "u"),
                ObjectOwner("ModelReplica", "ml", "r", "u"),
            ],
            id="cluster",
        ),
    ],
)
async def test_other_owners_are_found_and_unresponsive_ones_are_queried_more_and_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
    find: Callable[[frozenset[str]], AsyncIterator[ObjectOwner]],
    answers: dict[str, object],
    want: list[ObjectOwner],
) -> None:
    workflows, found = Workflows(monkeypatch, answers), list[ObjectOwner]()

    async def search() -> None:
        async for owner in find(frozenset()):
            found.append(owner)

    async def searched() -> None:
        task = asyncio.create_task(search())
        silent = [each for each, answer in answers.items() if answer is SILENT]
        await eventually(
            lambda: task.done() or all(workflows.queried[each] > 10 for each in silent)
        )
        assert not task.done()
        assert sorted(found) == want
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        queried = workflows.queried.copy()
        await asyncio.sleep(0.01)
        assert workflows.queried == queried, "no search is left"
        assert sorted(set(workflows.waited)) == [5, 10, 20, 40, 80, 160, 320, 600]

    await asked_by("inferencegateway/default").run(searched)
