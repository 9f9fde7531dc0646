"""What a cluster leaves, and what a cloud refuses: the whole workflow at the fake clouds, in virtual time (spec/provisioning.md 11)."""

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from activities.clouds.eks import clients
from testbed.clouds.aws.direct import direct
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.aws.faults import Fault, Kind, Leftover
from testbed.clouds.gcp.calls.faults import Leak
from testbed.clouds.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake, Life
from tests.activities.clouds.lives.virtual_time import run
from tests.activities.clouds.requests import checking

# Seconds: the next attempt at what failed comes later.
_MOMENT = 0.2
AUTH_FAILURE = "You do not have permission to access the specified resource"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeAws, Fake]]:
    """An account at AWS, whose clients are made once: making them takes seconds."""
    with pytest.MonkeyPatch.context() as patch, FakeAws(role="provisioner") as aws, direct(aws):
        patch.setattr(clients, "_core", checking(clients._core))
        yield aws, eks_fake(aws)


@pytest.fixture
def eks(served: tuple[FakeAws, Fake]) -> tuple[FakeAws, Fake]:
    served[0].reset()
    return served


def lived(fake: Fake, until: Callable[[], bool] | None = None) -> list[str]:
    """Have a cluster created, until this holds or until it is Ready, then deleted to the end; gives the reasons of its events."""

    async def work() -> list[str]:
        life = Life(fake, random.Random(1))  # noqa: S311 - repeatable on purpose
        with life.temporal.patched():
            try:
                life.begin()
                life.order(fake.pool())
                if until is None:
                    assert await life.until_ready(), life.progress["message"]
                else:
                    while not until():  # noqa: ASYNC110 - no event says that it holds
                        await asyncio.sleep(_MOMENT)
                life.delete()
                assert await life.until_gone(), life.progress["message"]
                assert [*life.temporal.defects, *fake.defects()] == []
                return [event.reason for event in life.temporal.instance.state.events]
            finally:
                await life.stop()

    return run(work, random.Random(2))  # noqa: S311 - repeatable on purpose


def outcomes(aws: FakeAws, *operations: str) -> list[tuple[str, str]]:
    """Which of these operations were called, and with which error, in order."""
    return [(each.operation, each.error) for each in aws.ledger() if each.operation in operations]


@pytest.mark.slow
def test_case_65_an_interface_of_a_node_is_swept_when_a_subnet_is_refused_for_it(eks: tuple[FakeAws, Fake]) -> None:
    aws, fake = eks
    aws.fault(Fault(Kind.LEAK, operation="DeleteNodegroup", leftover=Leftover.INTERFACE))
    assert "LeftoverDeleted" in lived(fake)
    calls = outcomes(aws, "DeleteSubnet", "DeleteNetworkInterface")
    swept = calls.index(("DeleteNetworkInterface", ""))
    assert ("DeleteSubnet", "DependencyViolation") in calls[:swept]
    assert ("DeleteSubnet", "") in calls[swept:]
    assert aws.remains() == []


@pytest.mark.slow
def test_case_67_a_file_system_is_deleted_when_none_of_its_mount_targets_is_left(eks: tuple[FakeAws, Fake]) -> None:
    aws, fake = eks
    lived(fake)
    calls = outcomes(aws, "DeleteMountTarget", "DeleteFileSystem")
    assert [each for each in calls if each[0] == "DeleteFileSystem"] == [("DeleteFileSystem", "")], "EFS never says FileSystemInUse"
    assert calls[-1][0] == "DeleteFileSystem"
    assert len(calls) > 1
    assert aws.remains() == []


@pytest.mark.slow
def test_case_68_an_address_that_is_refused_as_no_right_of_the_caller_is_waited_for_and_pauses_nothing(eks: tuple[FakeAws, Fake]) -> None:
    aws, fake = eks
    aws.fault(Fault(Kind.REFUSE, operation="ReleaseAddress", code="AuthFailure", message=AUTH_FAILURE, times=3))
    assert not {"CredentialsInvalid", "Resumed"} & set(lived(fake))
    calls = outcomes(aws, "DeleteNatGateway", "ReleaseAddress")
    assert calls == [("DeleteNatGateway", ""), *[("ReleaseAddress", "AuthFailure")] * 3, ("ReleaseAddress", "")]
    assert aws.remains() == []


@pytest.mark.slow
def test_case_71_an_address_is_released_whose_allocation_was_not_answered_when_the_deletion_came(eks: tuple[FakeAws, Fake]) -> None:
    aws, fake = eks
    # The client repeats the call by itself, which makes a second one.
    aws.fault(Fault(Kind.LOSE_ANSWER, operation="AllocateAddress"))
    lived(fake, until=lambda: bool(aws.ledger("AllocateAddress")))
    assert aws.made("AllocateAddress") == aws.made("ReleaseAddress") > 0
    assert aws.made("CreateNatGateway") == 0
    assert aws.remains() == []


@pytest.mark.slow
def test_case_69_a_filestore_instance_that_is_left_is_deleted_and_then_its_network() -> None:
    with FakeGoogle() as google:
        google.fault(Leak(kind="filestore"))
        assert "LeftoverDeleted" in lived(gke_fake(google))
        deleted = [call.name for call in google.ledger().calls("*.delete*", effective=True)]
        order = ["container.delete_cluster", "filestore.delete_instance", "compute.networks.delete"]
        assert [name for name in deleted if name in order] == order
        assert google.remains() == []
