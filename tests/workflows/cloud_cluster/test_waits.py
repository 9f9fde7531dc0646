"""Waits that end by themselves, on a real Temporal server and a scripted cloud: nobody retries. Numbers: spec/provisioning.md 11."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import Client

from activities.clouds.activities import Patience
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
    """A cluster at GKE that waits for seconds where others wait for minutes; a credential is looked for as often."""
    async with cloud_plane(server, "GKE", drift_interval=2, pool_drain_wait=1) as plane:
        yield plane


@pytest_asyncio.fixture
async def eks(server: Client) -> AsyncIterator[CloudPlane]:
    """The same at EKS, which is looked at rarely: what happens there is the end of a wait."""
    async with cloud_plane(server, "EKS", quota_retry=1, capacity_retry=1) as plane:
        yield plane


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_CREDENTIALS_RETRY", SHORT)
    monkeypatch.setattr(failures, "_TRANSIENT_RETRY", SHORT)
    monkeypatch.setattr(teardown, "_AUDIT_PAUSE", SHORT)


async def test_case_30_a_quota_is_asked_for_again(eks: CloudPlane) -> None:
    eks.cloud.refuse["create", "net/vpc"] = [QuotaExceeded("VPCs per region") for _ in range(2)]
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert "QuotaExceeded" in [reason for reason, _ in await eks.events()]
    assert eks.cloud.written("create").count("net/vpc") == 3


async def test_case_33_machines_are_asked_for_again(eks: CloudPlane) -> None:
    eks.cloud.broken["pool/gpu"] = (3, CapacityUnavailable)
    await eks.apply(an_eks_pool())
    seen = await eks.ready()
    assert (row(seen, "pool/gpu")["epoch"], eks.cloud.written("create").count("pool/gpu")) == (3, 4)
    assert "CapacityUnavailable" in [reason for reason, _ in await eks.events()]


async def test_case_18_a_credential_that_comes_back_is_noticed(gke: CloudPlane) -> None:
    gke.secrets.credential = None
    await gke.apply(a_pool())
    await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    gke.secrets.credential = GOOD
    await gke.ready()
    assert "Resumed" in [reason for reason, _ in await gke.events()]


async def test_case_19_a_deletion_goes_on_when_the_credential_comes_back(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.shut = True
    await gke.delete()
    await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    gke.cloud.shut = False
    await gke.gone()
    assert gke.cloud.things == {}


async def test_case_29_trouble_that_lasts_is_tried_again(gke: CloudPlane) -> None:
    await gke.stop_cloud_worker()
    gke.patience = Patience(trouble=0.0)
    await gke.start_cloud_worker()
    gke.cloud.refuse["create", "net/vpc"] = [Throttled("rate of inserts exceeded") for _ in range(2)]
    await gke.apply(a_pool())
    await gke.ready()
    assert gke.cloud.refuse["create", "net/vpc"] == []
    assert "Throttled" in [reason for reason, _ in await gke.events()]


async def test_case_56_what_was_changed_by_hand_is_found_by_a_look(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.things["net/subnet"].content = "another range"
    await gke.until_cloud(lambda cloud: cloud.written("update") == ["net/subnet"])


async def test_case_55_a_removed_pool_goes_though_replicas_are_there(gke: CloudPlane) -> None:
    await gke.apply(a_pool("a"), a_pool("b"))
    await gke.ready()
    await gke.apply(a_pool("a"))
    await gke.until(lambda seen: "pool/b" not in [each["key"] for each in seen["objects"]])
    assert gke.cloud.written("delete") == ["pool/b"]


async def test_case_65_what_is_left_is_looked_for_again(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.leftovers = [BALANCER]
    await gke.delete()
    await gke.gone()
    assert (gke.cloud.things, gke.cloud.leftovers) == ({}, [])


async def test_a_report_is_sent_again_and_an_inference_cluster_that_does_not_run_is_an_event(
    eks: CloudPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "_REPORT_AGAIN", SHORT)
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert "OwnerMissing" in [reason for reason, _ in await eks.events()]

    async def sent() -> int:
        history = await eks.handle.fetch_history()
        scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
        return len([each for each in scheduled if each.activity_type.name == "tell_many"])

    before = await sent()
    await eventually(sent, lambda count: count > before + 1, within=20, what="two more reports")
