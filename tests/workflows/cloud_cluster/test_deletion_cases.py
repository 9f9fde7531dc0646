"""Leftovers of a cluster, and refusals of the cloud, during a deletion.

The whole workflow runs at the fake clouds in virtual time.
"""

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from activities.clouds.eks import sessions
from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
from fakes.gcp.calls.faults import Leak
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake, Life
from tests.activities.clouds.lives.virtual_time import run
from tests.activities.clouds.requests import checking

# Seconds. The next attempt after a failure comes later.
_MOMENT = 0.2
AUTH_FAILURE = "You do not have permission to access the specified resource"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeAws, Fake]]:
    """Serve one AWS account for all tests, because making its clients takes seconds."""
    with (
        pytest.MonkeyPatch.context() as patch,
        FakeAws(role="provisioner") as aws,
        direct(aws),
    ):
        patch.setattr(sessions, "_core", checking(sessions._core))
        yield aws, eks_fake(aws)


@pytest.fixture
def eks(served: tuple[FakeAws, Fake]) -> tuple[FakeAws, Fake]:
    served[0].reset()
    return served


def lived(fake: Fake, until: Callable[[], bool] | None = None) -> list[str]:
    """Create a cluster, wait for `until` or Ready, delete it, and return its event reasons."""

    async def work() -> list[str]:
        life = Life(fake, random.Random(1))  # noqa: S311
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

    return run(work, random.Random(2))  # noqa: S311


def outcomes(aws: FakeAws, *operations: str) -> list[tuple[str, str]]:
    """Return the calls of these operations with their errors, in order."""
    return [
        (each.operation, each.error)
        for each in aws.ledger()
        if each.operation in operations
    ]


@pytest.mark.slow
def test_a_leftover_network_interface_is_deleted_when_it_blocks_a_subnet(
    eks: tuple[FakeAws, Fake],
) -> None:
    aws, fake = eks
    aws.fault(
        AwsFault(
            FaultKind.LEAK, operation="DeleteNodegroup", leftover=VpcLeftover.INTERFACE
        )
    )
    assert "LeftoverDeleted" in lived(fake)
    calls = outcomes(aws, "DeleteSubnet", "DeleteNetworkInterface")
    swept = calls.index(("DeleteNetworkInterface", ""))
    assert ("DeleteSubnet", "DependencyViolation") in calls[:swept]
    assert ("DeleteSubnet", "") in calls[swept:]
    assert aws.remains() == []


@pytest.mark.slow
def test_a_file_system_is_deleted_after_all_its_mount_targets(
    eks: tuple[FakeAws, Fake],
) -> None:
    aws, fake = eks
    lived(fake)
    calls = outcomes(aws, "DeleteMountTarget", "DeleteFileSystem")
    assert [each for each in calls if each[0] == "DeleteFileSystem"] == [
        ("DeleteFileSystem", "")
    ], "EFS never says FileSystemInUse"
    assert calls[-1][0] == "DeleteFileSystem"
    assert len(calls) > 1
    assert aws.remains() == []


@pytest.mark.slow
def test_an_address_refused_for_missing_permission_is_waited_for_without_a_pause(
    eks: tuple[FakeAws, Fake],
) -> None:
    aws, fake = eks
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="ReleaseAddress",
            code="AuthFailure",
            message=AUTH_FAILURE,
            times=3,
        )
    )
    assert not {"CredentialsInvalid", "Resumed"} & set(lived(fake))
    calls = outcomes(aws, "DeleteNatGateway", "ReleaseAddress")
    assert calls == [
        ("DeleteNatGateway", ""),
        *[("ReleaseAddress", "AuthFailure")] * 3,
        ("ReleaseAddress", ""),
    ]
    assert aws.remains() == []


@pytest.mark.slow
def test_an_address_with_an_unanswered_allocation_is_released_by_the_deletion(
    eks: tuple[FakeAws, Fake],
) -> None:
    aws, fake = eks
    # The client repeats the call itself, which makes a second one.
    aws.fault(AwsFault(FaultKind.LOSE_ANSWER, operation="AllocateAddress"))
    lived(fake, until=lambda: bool(aws.ledger("AllocateAddress")))
    assert aws.made("AllocateAddress") == aws.made("ReleaseAddress") > 0
    assert aws.made("CreateNatGateway") == 0
    assert aws.remains() == []


@pytest.mark.slow
def test_a_leftover_filestore_instance_is_deleted_before_its_network() -> None:
    with FakeGoogle() as google:
        google.fault(Leak(kind="filestore"))
        assert "LeftoverDeleted" in lived(gke_fake(google))
        deleted = [
            call.name for call in google.ledger().calls("*.delete*", effective=True)
        ]
        order = [
            "container.delete_cluster",
            "filestore.delete_instance",
            "compute.networks.delete",
        ]
        # A network in use is refused by its operation, so its deletion is repeated.
        last = dict.fromkeys(name for name in reversed(deleted) if name in order)
        assert list(reversed(last)) == order
        assert google.remains() == []
