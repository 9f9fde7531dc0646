"""Waits that end without a retry by the user, on a real Temporal server and a scripted cloud."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import Client

from activities.clouds.patience import Patience
from api_types.errors import CapacityUnavailable, QuotaExceeded, Throttled
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.environment.scripted_cloud import GOOD
from tests.workflows.cloud_cluster.control_plane import CloudPlane, cloud_plane, row
from tests.workflows.cloud_cluster.test_troubles import BALANCER
from tests.workflows.environment.harness import eventually
from workflows.cloud_cluster import failures, teardown, workflow

pytestmark = pytest.mark.slow

SHORT = timedelta(seconds=1)


@pytest_asyncio.fixture
async def gke(server: Client) -> AsyncIterator[CloudPlane]:
    """Start a GKE cluster with waits of seconds instead of minutes, also for the credential."""
    async with cloud_plane(server, "GKE", drift_interval=2, pool_drain_wait=1) as plane:
        yield plane


@pytest_asyncio.fixture
async def eks(server: Client) -> AsyncIterator[CloudPlane]:
    """Start an EKS cluster that is rarely checked, so that only the end of a wait has an effect."""
    async with cloud_plane(server, "EKS", quota_retry=1, capacity_retry=1) as plane:
        yield plane


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_CREDENTIALS_RETRY", SHORT)
    monkeypatch.setattr(failures, "_TRANSIENT_RETRY", SHORT)
    monkeypatch.setattr(teardown, "_AUDIT_PAUSE", SHORT)


async def test_an_exceeded_quota_is_retried(eks: CloudPlane) -> None:
    eks.cloud.refuse["create", "net/vpc"] = [
        QuotaExceeded("VPCs per region") for _ in range(2)
    ]
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert "QuotaExceeded" in [reason for reason, _ in await eks.events()]
    assert eks.cloud.written("create").count("net/vpc") == 3


async def test_missing_capacity_is_retried(eks: CloudPlane) -> None:
    eks.cloud.broken["pool/gpu"] = (3, CapacityUnavailable)
    await eks.apply(an_eks_pool())
    seen = await eks.ready()
    assert (
        row(seen, "pool/gpu")["epoch"],
        eks.cloud.written("create").count("pool/gpu"),
    ) == (3, 4)
    assert "CapacityUnavailable" in [reason for reason, _ in await eks.events()]


async def test_a_restored_credential_is_noticed(gke: CloudPlane) -> None:
    gke.secrets.credential = None
    await gke.apply(a_pool())
    await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    gke.secrets.credential = GOOD
    await gke.ready()
    assert "Resumed" in [reason for reason, _ in await gke.events()]


async def test_a_deletion_continues_when_the_credential_is_restored(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.shut = True
    await gke.delete()
    await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    gke.cloud.shut = False
    await gke.gone()
    assert gke.cloud.things == {}


async def test_a_lasting_error_is_retried(gke: CloudPlane) -> None:
    await gke.stop_cloud_worker()
    gke.patience = Patience(trouble=0.0)
    await gke.start_cloud_worker()
    gke.cloud.refuse["create", "net/vpc"] = [
        Throttled("rate of inserts exceeded") for _ in range(2)
    ]
    await gke.apply(a_pool())
    await gke.ready()
    assert gke.cloud.refuse["create", "net/vpc"] == []
    assert "Throttled" in [reason for reason, _ in await gke.events()]


async def test_a_manual_change_is_found_by_a_check(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.things["net/subnet"].content = "another range"
    await gke.until_cloud(lambda cloud: cloud.written("update") == ["net/subnet"])


async def test_a_removed_pool_is_deleted_although_replicas_remain(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool("a"), a_pool("b"))
    await gke.ready()
    await gke.apply(a_pool("a"))
    await gke.until(
        lambda seen: "pool/b" not in [each["key"] for each in seen["objects"]]
    )
    assert gke.cloud.written("delete") == ["pool/b"]


async def test_leftovers_are_searched_for_again(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.leftovers = [BALANCER]
    await gke.delete()
    await gke.gone()
    assert (gke.cloud.things, gke.cloud.leftovers) == ({}, [])


async def test_a_report_is_repeated_and_a_missing_inference_cluster_is_an_event(
    eks: CloudPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "_REPORT_AGAIN", SHORT)
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert "OwnerMissing" in [reason for reason, _ in await eks.events()]

    async def sent() -> int:
        history = await eks.handle.fetch_history()
        scheduled = [
            event.activity_task_scheduled_event_attributes for event in history.events
        ]
        return len(
            [each for each in scheduled if each.activity_type.name == "tell_many"]
        )

    before = await sent()
    await eventually(
        sent, lambda count: count > before + 1, within=20, what="two more reports"
    )
