"""A ModelCache adopts only objects of ended runs of its own workflow."""

from typing import cast

import pytest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.caches.predecessors import ended_uids
from activities.cluster_objects.ownership import ObjectOwner
from api_types.errors import ServerError
from tests.activities.caches.staging import EndedRuns

CACHE = ObjectOwner("ModelCache", "ml", "qwen", "uid-now")


async def found(runs: EndedRuns, *wanted: str) -> set[str]:
    return await ended_uids(cast("Client", runs), CACHE, wanted)


async def test_the_uid_of_an_ended_run_is_found_and_another_is_not() -> None:
    runs = EndedRuns({"r3": {"uid": "uid-3"}, "r2": {"uid": "uid-2"}})
    assert await found(runs, "uid-2", "uid-of-another-control-plane") == {"uid-2"}
    (query,) = runs.queries
    assert query == (
        'ExecutionStatus IN ("Terminated", "Failed", "TimedOut", "Canceled") '
        'AND WorkflowId = "modelcache/ml/qwen"'
    )


async def test_a_run_that_cannot_answer_proves_nothing() -> None:
    gone = RPCError("gone", RPCStatusCode.NOT_FOUND, b"")
    runs = EndedRuns(
        {"r3": WorkflowQueryFailedError("no state"), "r2": gone, "r1": {"uid": "uid-1"}}
    )
    assert await found(runs, "uid-1", "uid-2") == {"uid-1"}
    assert await found(EndedRuns({"r3": {}, "r2": gone}), "uid-1") == set()


async def test_an_unreachable_server_is_an_error_that_is_retried() -> None:
    with pytest.raises(
        ServerError, match="cannot query earlier runs of modelcache/ml/qwen"
    ):
        await found(
            EndedRuns({"r1": RPCError("down", RPCStatusCode.UNAVAILABLE, b"")}), "uid-1"
        )
