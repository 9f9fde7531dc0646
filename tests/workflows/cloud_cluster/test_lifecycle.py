"""The lifecycle of a cloud cluster, on a real Temporal server and a scripted cloud."""

import pytest

from activities.clouds.eks.wanted.control_plane import access_key
from activities.clouds.patience import Patience
from api_types.errors import PermissionDenied
from api_types.messages.signals import CloudClusterSignals
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.environment import scripted_cloud
from tests.environment.scripted_cloud import ROLE
from tests.workflows.cloud_cluster.control_plane import CloudPlane, Json, row

pytestmark = pytest.mark.slow

GKE_KEYS = [
    "api/file",
    "net/vpc",
    "net/subnet",
    "iam/sa",
    "iam/binding",
    "cluster",
    "pool/gpu",
    "conn",
    "nodes/system",
    "sc",
]


async def test_a_gke_cluster_is_created_and_deleted_without_remains(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    seen = await gke.ready()
    assert sorted(each["key"] for each in seen["objects"]) == sorted(GKE_KEYS)
    assert sorted(gke.cloud.written("create")) == sorted(
        set(GKE_KEYS) - {"conn", "nodes/system", "sc"}
    )
    assert gke.cluster.applied == ["modelplane-rwx"]
    await gke.delete()
    await gke.gone()
    assert gke.cloud.things == {}
    deleted = gke.cloud.written("delete")
    assert "pool/gpu" not in deleted, "GKE deletes pools with the control plane"
    assert (
        deleted.index("cluster")
        < deleted.index("net/subnet")
        < deleted.index("net/vpc")
    )
    assert deleted.index("iam/binding") < deleted.index("iam/sa")


async def test_an_eks_cluster_is_deleted_in_reverse_order_of_its_graph(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert ("ensure", "cluster-autoscaler") in eks.helm.calls
    await eks.delete()
    await eks.gone()
    assert eks.cloud.things == {}
    assert ("uninstall", "cluster-autoscaler") in eks.helm.calls
    deleted = eks.cloud.written("delete")
    order = ["pool/gpu", "cluster", "net/subnets", "net/vpc"]
    assert [key for key in deleted if key in order] == order
    assert (
        deleted.index("addon/coredns")
        < deleted.index("pool/system")
        < deleted.index("cluster")
        < deleted.index("iam/cluster")
    )
    assert not {access_key(ROLE), "addon/vpc-cni", "addon/kube-proxy"} & set(deleted), (
        "they go with the control plane"
    )


async def test_a_cluster_is_ready_when_a_node_of_its_system_pool_is(
    eks: CloudPlane,
) -> None:
    eks.cluster.nodes_ready = False
    await eks.stop_cloud_worker()
    eks.patience = Patience(unknown=0.0)
    await eks.start_cloud_worker()
    await eks.apply(an_eks_pool())

    def waits(seen: Json) -> bool:
        there = any(
            (each["key"], each["phase"]) == ("sc", "Ready") for each in seen["objects"]
        )
        return there and "NotYet: nodes/system" in seen["message"]

    seen = await eks.until(waits)
    assert (seen["usable"], seen["ready"]) == (True, False)
    assert "none of 1 nodes of pool system is Ready" in seen["message"]
    eks.cluster.nodes_ready = True
    await eks.retry_now()
    await eks.ready()
    eks.cluster.nodes_ready = False
    await eks.retry_now()
    seen = await eks.until(
        lambda seen: "none of 1 nodes of pool system is Ready" in seen["message"]
    )
    assert (seen["usable"], seen["ready"], eks.cloud.written("delete")) == (
        True,
        False,
        [],
    )
    eks.cluster.nodes_ready = True
    await eks.delete()
    await eks.gone()
    assert eks.cloud.things == {}


# Changes


async def test_gke_pools_are_created_in_parallel(gke: CloudPlane) -> None:
    gke.cloud.polls = 5
    await gke.apply(a_pool("a"), a_pool("b"), a_pool("c"))
    await gke.ready()
    assert gke.cloud.most_at_once["NodePool"] > 1


async def test_eks_pools_are_created_in_parallel(eks: CloudPlane) -> None:
    eks.cloud.polls = 5
    await eks.apply(an_eks_pool("a"), an_eks_pool("b"), an_eks_pool("c"))
    await eks.ready()
    assert eks.cloud.most_at_once["Nodegroup"] > 1


async def test_a_changed_maximum_is_one_update_of_its_pool(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool("a", maxNodeCount=4), an_eks_pool("b"))
    await eks.ready()
    created = len(eks.cloud.written("create"))
    await eks.apply(an_eks_pool("a", maxNodeCount=6, nodeCount=2), an_eks_pool("b"))
    await eks.until_cloud(lambda cloud: bool(cloud.written("update")))
    await eks.ready()
    assert (eks.cloud.written("update"), len(eks.cloud.written("create"))) == (
        ["pool/a"],
        created,
    )
    assert [
        message.split(":")[0]
        for reason, message in await eks.events()
        if reason == "CountUnused"
    ] == ["pool a"]


async def test_an_immutable_change_is_reported_until_it_is_reverted(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool(maxNodeCount=4))
    await eks.ready()
    eks.cloud.replaced.add("pool/gpu")
    await eks.apply(an_eks_pool(maxNodeCount=6))
    seen = await eks.until(lambda seen: "ReplaceRequired" in seen["message"])
    assert seen["usable"]
    written = len(eks.cloud.calls) - len(eks.cloud.written("plan"))
    await eks.apply(an_eks_pool(maxNodeCount=4))
    seen = await eks.ready()
    assert (seen["message"], len(eks.cloud.calls) - len(eks.cloud.written("plan"))) == (
        "",
        written,
    )


async def test_a_removed_pool_is_deleted_when_no_replica_can_use_it(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool("a"), a_pool("b"))
    await gke.ready()
    await gke.apply(a_pool("a"))
    await gke.settled()
    assert gke.cloud.written("delete") == [], "it waits until it is drained"
    await gke.apply(a_pool("a"), removable=("b",))
    await gke.until(
        lambda seen: "pool/b" not in [each["key"] for each in seen["objects"]]
    )
    assert gke.cloud.written("delete") == ["pool/b"]


async def test_a_pool_with_a_class_of_another_cloud_is_skipped_and_the_others_are_built(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool("a"), a_pool("b", className="g6"))
    seen = await gke.until(lambda seen: bool(seen["ready"]))
    assert (seen["complete"], seen["reason"]) == (False, "InvalidNodePool")
    assert "pool b: InferenceClass g6 has no spec.provisioning.gke" in seen["message"]
    assert "pool/b" not in gke.cloud.things


async def test_deleting_a_class_deletes_nothing_at_the_cloud(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool("a"), a_pool("b"))
    await gke.ready()
    before = set(gke.cloud.things)
    await gke.apply(a_pool("a"), a_pool("b"), classes={})
    seen = await gke.settled()
    assert seen["ready"]
    assert (
        set(gke.cloud.things),
        gke.cloud.written("delete"),
        gke.cloud.written("update"),
    ) == (before, [], [])


async def test_a_zone_of_another_region_is_refused_before_anything_is_created(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool(zones=["us-east1-b"]))
    seen = await gke.until(lambda seen: bool(seen["message"]))
    assert "not in region europe-west4" in seen["message"]
    assert gke.cloud.written("create") == []
    await gke.apply(a_pool())
    await gke.ready()


async def test_a_later_refusal_changes_no_existing_object(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    before = set(gke.cloud.things)
    await gke.apply(a_pool(zones=["us-east1-b"]))
    seen = await gke.settled()
    assert "not in region" in seen["message"]
    assert (set(gke.cloud.things), gke.cloud.written("delete")) == (before, [])


async def test_the_access_entry_of_a_new_role_replaces_the_old_entry(
    eks: CloudPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    rotated = f"{ROLE}-rotated"
    monkeypatch.setattr(scripted_cloud, "ROLE", rotated)
    await eks.apply(an_eks_pool())
    await eks.until_cloud(
        lambda cloud: (
            [key for key in cloud.things if key.startswith("access/")]
            == [access_key(rotated)]
        )
    )
    await eks.ready()
    assert eks.cloud.written("delete") == [access_key(ROLE)]


# External changes


async def test_a_manual_change_is_reverted(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    eks.cloud.things["net/routes-public"].content = "another route"
    await eks.retry_now()
    await eks.until_cloud(
        lambda cloud: cloud.written("update") == ["net/routes-public"]
    )
    await eks.ready()
    assert "DriftDetected" in [reason for reason, _ in await eks.events()]


async def test_a_manually_deleted_access_entry_is_restored_though_it_locks_us_out(
    eks: CloudPlane,
) -> None:
    eks.cluster.shut = lambda: access_key(ROLE) not in eks.cloud.things
    await eks.apply(an_eks_pool())
    await eks.ready()
    del eks.cloud.things[access_key(ROLE)]
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: access_key(ROLE) in cloud.things, "the entry")
    await eks.ready()
    events = await eks.events()
    assert "CredentialsInvalid" not in [reason for reason, _ in events], (
        "nothing was paused"
    )
    assert any(
        reason == "NotObserved" and "401" in message for reason, message in events
    )


async def test_an_object_that_cannot_be_read_hides_no_change_of_another(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    eks.cloud.refuse["look", "iam/cluster"] = [PermissionDenied("iam:GetRole")] * 100
    eks.cloud.things["net/routes-public"].content = "another route"
    await eks.retry_now()
    await eks.until_cloud(
        lambda cloud: cloud.written("update") == ["net/routes-public"], "the route"
    )
    assert ("NotObserved", "PermissionDenied: iam:GetRole") in [
        (reason, text.rpartition("): ")[2]) for reason, text in await eks.events()
    ]


async def test_a_manually_deleted_pool_is_rebuilt_in_the_next_epoch(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    token = eks.cloud.things.pop("pool/gpu").token
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: "pool/gpu" in cloud.things)
    seen = await eks.ready()
    assert row(seen, "pool/gpu")["epoch"] == 1
    assert eks.cloud.things["pool/gpu"].token != token, (
        "the cloud would give the old answer for the old token"
    )
    assert "CloudObjectMissing" in [reason for reason, _ in await eks.events()]


async def test_a_manually_deleted_cluster_is_rebuilt_only_on_a_retry(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    for key in ("cluster", "pool/gpu"):
        del gke.cloud.things[key]
    created = len(gke.cloud.written("create"))
    await gke.retry_now()
    seen = await gke.until(lambda seen: not seen["usable"])
    assert "modelplane retry" in seen["message"]
    await gke.apply(a_pool())
    await gke.settled()
    assert len(gke.cloud.written("create")) == created
    await gke.retry_now()
    await gke.ready()
    assert gke.cloud.written("create")[created:] == ["cluster", "pool/gpu"]


async def test_a_change_of_a_manually_deleted_cluster_creates_nothing_before_it_is_seen_gone(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    for key in ("cluster", "pool/gpu"):
        del gke.cloud.things[key]
    created = len(gke.cloud.written("create"))
    await gke.apply(a_pool(), kubernetesVersion="1.36")
    seen = await gke.until(lambda seen: "modelplane retry" in seen["message"])
    assert (seen["usable"], len(gke.cloud.written("create"))) == (False, created)


async def test_a_pool_that_fails_later_is_kept_and_the_cluster_stays_usable(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    thing = gke.cloud.things["pool/gpu"]
    thing.state, thing.reason = (
        type(thing.state)("Broken"),
        "status ERROR: quota of addresses",
    )
    await gke.retry_now()
    seen = await gke.until(
        lambda seen: "status ERROR: quota of addresses" in seen["message"]
    )
    assert (seen["usable"], gke.cloud.written("delete")) == (True, [])
    thing.state = type(thing.state)("Ready")
    await gke.retry_now()


# Lost and late


async def test_a_workflow_without_history_finds_all_objects_and_creates_none(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    created = len(eks.cloud.written("create"))
    await eks.handle.terminate("lost")
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert len(eks.cloud.written("create")) == created


async def test_a_control_plane_lost_with_the_history_is_not_created_again_automatically(
    gke: CloudPlane,
) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    await gke.handle.terminate("lost")
    for key in ("cluster", "pool/gpu"):
        del gke.cloud.things[key]
    created = len(gke.cloud.written("create"))
    known = {"was_usable": True, "was_ready": True}
    await gke.send(
        CloudClusterSignals.APPLY, gke.order(a_pool()).model_copy(update=known)
    )
    seen = await gke.until(
        lambda seen: (
            "modelplane retry" in seen["message"] or "cluster" in gke.cloud.things
        )
    )
    assert (seen["usable"], len(gke.cloud.written("create"))) == (False, created)


async def test_a_workflow_without_history_deletes_all_objects_of_its_order(
    eks: CloudPlane,
) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    await eks.handle.terminate("lost")
    await eks.delete(order=eks.order(an_eks_pool()))
    await eks.gone()
    assert eks.cloud.things == {}


async def test_a_message_after_the_end_starts_nothing(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    await gke.delete()
    await gke.gone()
    assert not await gke.send(CloudClusterSignals.APPLY, gke.order(a_pool()))
    assert gke.cloud.things == {}


async def test_an_order_after_the_deletion_is_refused(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    gke.cloud.hold.add("cluster")
    await gke.delete()
    await gke.delete()
    await gke.until_cloud(lambda cloud: "cluster" in cloud.written("delete"))
    await gke.apply(a_pool(), a_pool("b"))
    assert "BeingDeleted" in [reason for reason, _ in await gke.events()]
    gke.cloud.hold.clear()
    await gke.gone()
    assert (gke.cloud.things, "pool/b" in gke.cloud.written("create")) == ({}, False)
