"""A worker that ends at any write of any object of a cluster, before or after the call: the next one goes on, and makes nothing twice."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from activities.clouds.eks.clients import Answer, AwsClients
from activities.clouds.eks.failures import Purpose
from activities.clouds.lifecycle.handler import State
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.aws.faults import Fault, Kind
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.eks.world import WorkerKilled, World, world_of

EFA = an_eks_pool("efa", className="p5en", fabric={"type": "EFA"})
_TOKENS = ("ClientToken", "clientRequestToken", "CreationToken")


class KillOnce:
    """Ends the worker once at each write: with `after`, when AWS has done it and before anybody knows."""

    def __init__(self, *, after: bool) -> None:
        self.after = after
        self.struck: list[str] = []
        self._seen: set[str] = set()

    def strike(self, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Whether this write is the first of its kind with these parameters."""
        seen = repr((operation, sorted((name, repr(value)) for name, value in parameters.items() if name not in _TOKENS)))
        if seen in self._seen:
            return False
        self._seen.add(seen)
        self.struck.append(operation)
        return True


@pytest.fixture(params=[False, True], ids=["F3 before the call", "F3 after the call"])
def killer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KillOnce:
    kills = KillOnce(after=request.param)
    call, create_cluster = AwsClients.call, AwsClients.create_cluster

    def killed(self: AwsClients, service: str, operation: str, parameters: Mapping[str, Any], purpose: Purpose) -> Answer | None:
        struck = purpose is not Purpose.READ and kills.strike(operation, parameters)
        if struck and not kills.after:
            raise WorkerKilled
        answer = call(self, service, operation, parameters, purpose)
        if struck:
            raise WorkerKilled
        return answer

    def killed_cluster(self: AwsClients, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        struck = kills.strike("create_cluster", parameters)
        if struck and not kills.after:
            raise WorkerKilled
        zones = create_cluster(self, parameters)
        if struck:
            raise WorkerKilled
        return zones

    monkeypatch.setattr(AwsClients, "call", killed)
    monkeypatch.setattr(AwsClients, "create_cluster", killed_cluster)
    return kills


def kinds(aws: FakeAws) -> Counter[str]:
    """How much there is of each kind."""
    return Counter(each.rpartition("/")[0] for each in aws.remains())


def creates(aws: FakeAws) -> Counter[str]:
    """How often each operation that creates was effective."""
    return Counter(each.operation for each in aws.ledger() if each.effective and each.operation.startswith(("Create", "Allocate")))


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Counter[str]]:
    return {}


async def undisturbed_run(aws: FakeAws, kept: dict[str, Counter[str]]) -> None:
    """Count what a run without faults makes, once for all tests."""
    world = world_of(aws)
    desired = world.plan(EFA)
    await world.create_all(desired.objects)
    kept["kinds"], kept["creates"] = kinds(aws), creates(aws)
    aws.reset()


@pytest.mark.slow
async def test_prv_24_a_worker_that_ends_at_any_write_makes_nothing_twice(
    aws: FakeAws, killer: KillOnce, undisturbed: dict[str, Counter[str]]
) -> None:
    if not undisturbed:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(killer, "strike", lambda *_: False)
            await undisturbed_run(aws, undisturbed)
    world = world_of(aws)
    desired = world.plan(EFA)
    await world.create_all(desired.objects)
    assert (kinds(aws), creates(aws)) == (undisturbed["kinds"], undisturbed["creates"])
    created = {call.operation for each in desired.objects for call in each.calls if call.service in ("ec2", "eks", "iam", "efs")}
    # EKS itself lets in the role that creates a cluster.
    assert created - set(killer.struck) == {"create_access_entry", "associate_access_policy"}
    deleting = len(killer.struck)
    await world.delete_all(desired.objects)
    assert aws.remains() == []
    deleted = set(killer.struck[deleting:])
    assert {"delete_vpc", "delete_cluster", "delete_nodegroup", "release_address", "delete_role", "delete_file_system"} <= deleted


@pytest.mark.parametrize(
    ("key", "operation", "deleting"),
    [
        ("net/vpc", "CreateVpc", "DeleteVpc"),
        ("net/igw", "CreateInternetGateway", "DeleteInternetGateway"),
        ("net/eip", "AllocateAddress", "ReleaseAddress"),
    ],
    ids=["prv-24 vpc", "prv-24 igw", "prv-24 eip"],
)
async def test_what_was_made_twice_because_its_answer_was_lost_is_removed(
    aws: FakeAws, world: World, key: str, operation: str, deleting: str
) -> None:
    desired = world.plan()
    objects = {each.key: each for each in desired.objects}
    for need in objects[key].needs:
        await world.ensure(objects[need])
    # The client itself sends again what was not answered.
    aws.fault(Fault(Kind.LOSE_ANSWER, operation=operation))
    await world.ensure(objects[key])
    assert (aws.made(operation), aws.made(deleting)) == (2, 1)
    assert world.look(objects[key]).state is State.READY
