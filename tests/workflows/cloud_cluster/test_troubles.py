"""Failures at a cloud and their consequences, on a real Temporal server and a scripted cloud."""

import asyncio
import threading
from collections.abc import Mapping

import pytest

from activities.clouds.patience import Patience
from api_types.errors import (
    CapacityUnavailable,
    Dependency,
    PermissionDenied,
    QuotaExceeded,
    ServerError,
    Throttled,
)
from api_types.messages.clouds import AuditCloud, Leftover
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.environment.scripted_cloud import OTHER, ScriptedProvider
from tests.workflows.cloud_cluster.control_plane import CloudPlane, row
from tests.workflows.environment.harness import eventually

pytestmark = pytest.mark.slow

BALANCER = Leftover(
    kind="LoadBalancer", id="a1b2c3", evidence="tag kubernetes.io/cluster", ours=True
)
OF_A_USER = Leftover(
    kind="Instance",
    id="i-0123",
    evidence="in our network, without our mark",
    link="https://cloud.example/i-0123",
)


async def hasten_dependencies(plane: CloudPlane) -> None:
    """Report a refused deletion at once."""
    await plane.stop_cloud_worker()
    plane.patience = Patience(dependency=0.0)
    await plane.start_cloud_worker()


async def test_an_exceeded_quota_blocks_dependent_objects_until_a_retry(
    eks: CloudPlane,
) -> None:
    eks.cloud.refuse["create", "net/vpc"] = [
        QuotaExceeded("VPCs per region: limit 5, needs 1 more")
    ]
    await eks.apply(an_eks_pool())
    seen = await eks.until(
        lambda seen: (
            "QuotaExceeded" in seen["message"] and row(seen, "efs")["phase"] == "Ready"
        )
    )
    assert seen["message"].startswith("QuotaExceeded: net/vpc")
    assert (seen["reason"], seen["usable"]) == ("Provisioning", False)
    assert "cluster" not in eks.cloud.things
    await eks.retry_now()
    await eks.ready()


async def test_a_broken_pool_is_rebuilt_once_and_then_waits_for_capacity(
    eks: CloudPlane,
) -> None:
    eks.cloud.broken["pool/gpu"] = (3, CapacityUnavailable)
    await eks.apply(an_eks_pool("gpu"), an_eks_pool("other"))
    seen = await eks.until(
        lambda seen: (
            "CapacityUnavailable" in seen["message"]
            and row(seen, "pool/other")["phase"] == "Ready"
        )
    )
    assert eks.cloud.written("create").count("pool/gpu") == 2
    assert (
        row(seen, "pool/gpu")["epoch"],
        row(seen, "pool/gpu")["phase"],
        seen["usable"],
    ) == (1, "Broken", True)
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: cloud.written("create").count("pool/gpu") == 3)
    await eks.until(
        lambda seen: (
            row(seen, "pool/gpu")["epoch"] == 2
            and bool(row(seen, "pool/gpu")["retryAt"])
        )
    )
    await eks.retry_now()
    seen = await eks.ready()
    assert row(seen, "pool/gpu")["epoch"] == 3


async def test_a_removed_credential_pauses_all_work_and_deletes_nothing(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    before = set(gke.cloud.things)
    gke.secrets.credential = None
    await gke.apply(a_pool(), a_pool("b"))
    seen = await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    assert (set(gke.cloud.things), seen["usable"]) == (before, True)
    gke.secrets.credential = "a credential"
    await gke.retry_now()
    await gke.until(
        lambda seen: (
            seen["ready"] and "pool/b" in [each["key"] for each in seen["objects"]]
        )
    )


async def test_a_deletion_without_a_credential_waits_for_it(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.shut = True
    await gke.delete()
    await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    assert "cluster" in gke.cloud.things
    gke.cloud.shut = False
    await gke.retry_now()
    await gke.gone()
    assert gke.cloud.things == {}


async def test_a_lost_response_creates_no_second_object(
    eks: CloudPlane,
) -> None:
    eks.cloud.lose = {
        ("create", key): 1 for key in ("net/vpc", "net/eip", "cluster", "pool/gpu")
    }
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert all(eks.cloud.written("create").count(key) == 1 for _, key in eks.cloud.lose)


async def test_a_lasting_error_is_reported_and_retried(gke: CloudPlane) -> None:
    await gke.stop_cloud_worker()
    gke.patience = Patience(trouble=3.0)
    await gke.start_cloud_worker()
    refused: list[Exception] = [Throttled("rate of inserts exceeded")] * 1000
    gke.cloud.refuse["create", "net/vpc"] = refused
    await gke.apply(a_pool())
    await gke.until(lambda seen: "Throttled: net/vpc" in seen["message"])
    refused.clear()
    await gke.retry_now()
    seen = await gke.ready()
    assert seen["message"] == ""


async def test_a_short_error_is_not_reported(gke: CloudPlane) -> None:
    gke.cloud.refuse["create", "net/vpc"] = [ServerError("internal error")]
    await gke.apply(a_pool())
    await gke.ready()
    assert "ServerError" not in [reason for reason, _ in await gke.events()]


async def test_another_worker_takes_over_when_one_stops(gke: CloudPlane) -> None:
    gke.cloud.hold.add("cluster")
    await gke.apply(a_pool())
    await gke.until_cloud(lambda cloud: "cluster" in cloud.things)
    await gke.stop_cloud_worker()
    await gke.start_cloud_worker()
    gke.cloud.hold.clear()
    await gke.ready()
    assert gke.cloud.written("create").count("cluster") == 1


# Deletion


async def test_a_cluster_is_deleted_during_its_creation(
    gke: CloudPlane,
) -> None:
    gke.cloud.hold.add("cluster")
    await gke.apply(a_pool())
    await gke.until_cloud(lambda cloud: "cluster" in cloud.things)
    await gke.delete()
    gke.cloud.hold.clear()
    await gke.gone()
    assert (gke.cloud.things, gke.cloud.written("create").count("cluster")) == ({}, 1)


async def test_objects_of_unanswered_creations_are_found_and_deleted(
    eks: CloudPlane,
) -> None:
    eks.cloud.lose["create", "net/eip"] = 100
    eks.cloud.refuse["create", "net/vpc"] = [QuotaExceeded("VPCs")]
    await eks.apply(an_eks_pool())
    await eks.until_cloud(lambda cloud: "net/eip" in cloud.things)
    await eks.delete()
    await eks.gone()
    assert eks.cloud.things == {}


async def test_a_cluster_without_objects_deletes_nothing(
    gke: CloudPlane,
) -> None:
    gke.secrets.credential = None
    await gke.apply(a_pool())
    await gke.until(lambda seen: "CredentialsInvalid" in seen["message"])
    await gke.delete()
    await gke.gone()
    assert gke.cloud.calls == []


async def test_leftovers_of_the_cluster_are_deleted_and_foreign_objects_stay(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.leftovers = [BALANCER, OF_A_USER]
    await gke.delete()
    await gke.until(lambda seen: "LoadBalancer a1b2c3" in seen["message"])
    await gke.retry_now()
    await gke.gone()
    assert (gke.cloud.things, gke.cloud.leftovers) == ({}, [OF_A_USER])


async def test_foreign_objects_in_the_network_block_its_deletion_and_are_named(
    gke: CloudPlane,
) -> None:
    await hasten_dependencies(gke)
    await gke.apply(a_pool())
    await gke.ready()
    subnet = gke.cloud.things["net/subnet"]
    gke.cloud.things["vm"] = type(subnet)(
        "vm", "Instance", "vm-1", OTHER, "", "", ("net/subnet",)
    )
    gke.cloud.leftovers = [BALANCER, OF_A_USER]
    await gke.delete()
    seen = await gke.until(
        lambda seen: (
            "Dependency: net/subnet" in seen["message"]
            and "blocking the deletion" in seen["message"]
        )
    )
    assert "is used by vm" in seen["message"]
    assert (
        "owned by others and blocking the deletion: Instance i-0123 (https://cloud.example/i-0123)"
        in seen["message"]
    )
    await gke.until_cloud(lambda cloud: cloud.leftovers == [OF_A_USER], "the sweep")
    del gke.cloud.things["vm"]
    await gke.retry_now()
    await gke.gone()
    assert gke.cloud.things == {}
    described = await gke.handle.query("describe")
    assert [each["id"] for each in described["status"]["leftovers"]] == ["i-0123"]


async def test_objects_missing_from_the_inventory_are_found_by_labels_and_deleted(
    eks: CloudPlane,
) -> None:
    await hasten_dependencies(eks)
    await eks.apply(an_eks_pool(), an_eks_pool("old"))
    await eks.ready()
    await eks.handle.terminate("lost")
    # No plan names this pool: it was removed, and waited for its replicas.
    await eks.delete(order=eks.order(an_eks_pool()))
    await eks.gone()
    assert eks.cloud.things == {}
    assert ("sweep", eks.cloud.ids["pool/old"]) in eks.cloud.calls


async def test_objects_missing_from_the_inventory_are_deleted_even_if_the_manifest_is_refused(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    await gke.handle.terminate("lost")
    await gke.delete(order=gke.order(a_pool(zones=["us-east1-b"])))

    async def look() -> Mapping[str, object]:
        await gke.retry_now()
        return gke.cloud.things

    await eventually(look, lambda things: not things, within=40.0, longest_pause=0.5)
    await gke.gone()


async def test_leftovers_after_three_rounds_are_reported_and_block_the_deletion(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.leftovers = [BALANCER]
    gke.cloud.refuse["sweep", BALANCER.id] = [
        Dependency("a listener uses it") for _ in range(100)
    ]
    await gke.delete()
    await gke.until(
        lambda seen: "left at the cloud: LoadBalancer a1b2c3" in seen["message"]
    )

    async def rounds() -> list[str]:
        await gke.retry_now()
        return [
            message
            for reason, message in await gke.events()
            if reason == "LeftoversFound"
        ]

    said = await eventually(rounds, bool, within=40.0, longest_pause=0.5)
    assert said == ["left at the cloud after 3 audits: LoadBalancer a1b2c3"]
    assert (await gke.progress())["phase"] == "Deleting"
    gke.cloud.refuse.clear()
    await gke.retry_now()
    await gke.until_cloud(lambda cloud: cloud.leftovers == [], "the sweep")
    await gke.gone()


async def test_a_retry_during_an_audit_repeats_it_at_once(
    gke: CloudPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def refused(
        provider: ScriptedProvider, order: AuditCloud, leftover: Leftover
    ) -> None:
        if goes_on.is_set():
            sweep(provider, order, leftover)
            return
        begun.set()
        goes_on.wait(20)
        raise Dependency("a listener uses it")

    sweep = ScriptedProvider.sweep
    monkeypatch.setattr(ScriptedProvider, "sweep", refused)
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.leftovers = [BALANCER]
    await gke.delete()
    await gke.until(
        lambda seen: "left at the cloud: LoadBalancer a1b2c3" in seen["message"]
    )
    await gke.retry_now()
    assert await asyncio.to_thread(begun.wait, 20)
    await gke.retry_now()
    goes_on.set()
    # Without the retry, the next audit comes half a minute later.
    async with asyncio.timeout(20):
        await gke.gone()


async def test_a_refused_audit_is_reported_and_waits(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.refuse["audit", ""] = [
        PermissionDenied("compute.forwardingRules.list"),
        PermissionDenied("compute.addresses.list"),
    ]
    await gke.delete()
    seen = await gke.until(lambda seen: "forwardingRules" in seen["message"])
    told = (
        "PermissionDenied: cannot search for leftovers: compute.forwardingRules.list; "
        "next step: grant the permission that the message names, and run "
    )
    assert seen["message"].startswith(told)
    assert gke.cloud.written("audit") == [""], (
        "it is queried again after the pause for missing permissions"
    )
    await gke.retry_now()
    await gke.until(lambda seen: "addresses" in seen["message"])
    await gke.retry_now()
    await gke.gone()
    assert len(gke.cloud.written("audit")) > 2


async def test_an_abandoned_cluster_is_left_and_listed_with_its_links(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.leftovers = [BALANCER]
    await gke.delete(abandon=True)
    await gke.gone()
    assert (
        "cluster" in gke.cloud.things,
        gke.cloud.written("delete"),
        gke.cloud.written("sweep"),
    ) == (True, [], [])
    (said,) = [
        message for reason, message in await gke.events() if reason == "Abandoned"
    ]
    cluster = gke.cloud.things["cluster"]
    assert f"{cluster.id} (https://cloud.example/{cluster.id})" in said
    assert "LoadBalancer a1b2c3" in said


async def test_an_abandoned_cluster_without_state_is_listed_by_its_labels(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    await gke.handle.terminate("lost")
    await gke.delete(abandon=True, order=gke.order(a_pool()))
    await gke.gone()
    (said,) = [
        message for reason, message in await gke.events() if reason == "Abandoned"
    ]
    assert all(f"{each.kind} {each.id}" in said for each in gke.cloud.things.values())


async def test_a_cluster_can_be_abandoned_without_its_credential(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.secrets.credential = None
    await gke.delete(abandon=True)
    await gke.gone()
    (said,) = [
        message for reason, message in await gke.events() if reason == "Abandoned"
    ]
    assert gke.cloud.things["cluster"].id in said
