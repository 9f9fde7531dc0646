"""The removal of a finalizer that an operator named, on a real API server."""

from typing import Any

import pytest

from api_types.errors import InvalidInput
from api_types.messages.stack import RemovedFinalizer, RemoveFinalizer
from tests.activities.stack.stack_under_test import StackUnderTest

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

SERVICES = "/api/v1/namespaces/default/services"
CLEANUP, OTHER = "service.kubernetes.io/load-balancer-cleanup", "example.com/other"
ID = "v1/Service/default/held"


def a_service(*finalizers: str) -> dict[str, Any]:
    return {
        "kind": "Service",
        "metadata": {"name": "held", "finalizers": list(finalizers)},
        "spec": {"ports": [{"port": 80}]},
    }


async def removed(
    stack: StackUnderTest, finalizer: str, target: str = ID
) -> RemovedFinalizer:
    found: RemovedFinalizer = await stack.run(
        stack.activities.remove_finalizer,
        RemoveFinalizer(object=target, finalizer=finalizer, **stack.base),
    )
    return found


async def test_only_the_given_finalizer_of_a_deleted_object_is_removed(
    stack: StackUnderTest,
) -> None:
    assert (await removed(stack, CLEANUP)).why == "the object does not have it any more"
    stack.world.create(SERVICES, a_service(CLEANUP, OTHER))
    assert await removed(stack, CLEANUP) == RemovedFinalizer(
        why="the object is not being deleted"
    )
    stack.world.delete(f"{SERVICES}/held")
    assert await removed(stack, CLEANUP) == RemovedFinalizer(removed=True)
    assert (await removed(stack, CLEANUP)).why == "the object does not have it any more"
    left = stack.world.get(f"{SERVICES}/held")
    assert left
    assert left["metadata"]["finalizers"] == [OTHER]
    assert await removed(stack, OTHER) == RemovedFinalizer(removed=True)
    assert stack.world.get(f"{SERVICES}/held") is None


async def test_an_invalid_object_id_is_refused(stack: StackUnderTest) -> None:
    with pytest.raises(InvalidInput, match="x/y"):
        await removed(stack, CLEANUP, "x/y")
