"""The life of a cluster at a cloud, on a real Temporal server and a scripted cloud. The numbers are those of spec/provisioning.md 11."""

import pytest

from activities.clouds.activities import Patience
from activities.clouds.eks.wanted.control_plane import access_key
from api_types.errors import PermissionDenied
from api_types.messages.signals import CloudClusterSignals
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.environment import scripted_cloud
from tests.environment.scripted_cloud import ROLE
from tests.workflows.cloud_cluster.control_plane import CloudPlane, Json, row

pytestmark = pytest.mark.slow

GKE_KEYS = ["api/file", "net/vpc", "net/subnet", "iam/sa", "iam/binding", "cluster", "pool/gpu", "conn", "nodes/system", "sc"]


async def test_case_1_a_gke_cluster_is_created_and_deleted_without_remains(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    seen = await gke.ready()
    assert sorted(each["key"] for each in seen["objects"]) == sorted(GKE_KEYS)
    assert sorted(gke.cloud.written("create")) == sorted(set(GKE_KEYS) - {"conn", "nodes/system", "sc"})
    assert gke.cluster.applied == ["modelplane-rwx"]
    await gke.delete()
    await gke.gone()
    assert gke.cloud.things == {}
    deleted = gke.cloud.written("delete")
    assert "pool/gpu" not in deleted, "GKE deletes pools with the control plane"
    assert deleted.index("cluster") < deleted.index("net/subnet") < deleted.index("net/vpc")
    assert deleted.index("iam/binding") < deleted.index("iam/sa")


async def test_case_62_an_eks_cluster_is_deleted_against_its_graph(eks: CloudPlane) -> None:
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
    assert deleted.index("addon/coredns") < deleted.index("pool/system") < deleted.index("cluster") < deleted.index("iam/cluster")
    assert not {access_key(ROLE), "addon/vpc-cni", "addon/kube-proxy"} & set(deleted), "they go with the control plane"


async def test_prv_7_9_a_cluster_is_ready_when_a_node_of_its_system_pool_is(eks: CloudPlane) -> None:
    eks.cluster.nodes_ready = False
    await eks.stop_cloud_worker()
    eks.patience = Patience(unknown=0.0)
    await eks.start_cloud_worker()
    await eks.apply(an_eks_pool())

    def waits(seen: Json) -> bool:
        there = any((each["key"], each["phase"]) == ("sc", "Ready") for each in seen["objects"])
        return there and "NotYet: nodes/system" in seen["message"]

    seen = await eks.until(waits)
    assert (seen["usable"], seen["ready"]) == (True, False)
    assert "none of 1 nodes of pool system is Ready" in seen["message"]
    eks.cluster.nodes_ready = True
    await eks.retry_now()
    await eks.ready()
    eks.cluster.nodes_ready = False
    await eks.retry_now()
    seen = await eks.until(lambda seen: "none of 1 nodes of pool system is Ready" in seen["message"])
    assert (seen["usable"], seen["ready"], eks.cloud.written("delete")) == (True, False, [])
    eks.cluster.nodes_ready = True
    await eks.delete()
    await eks.gone()
    assert eks.cloud.things == {}


# --- changes ------------------------------------------------------------------------------------------------------------------------------


async def test_case_38_pools_of_gke_are_made_one_after_the_other(gke: CloudPlane) -> None:
    await gke.apply(a_pool("a"), a_pool("b"), a_pool("c"))
    await gke.ready()
    assert gke.cloud.most_at_once["NodePool"] == 1


async def test_case_38_pools_of_eks_are_made_together(eks: CloudPlane) -> None:
    eks.cloud.polls = 5
    await eks.apply(an_eks_pool("a"), an_eks_pool("b"), an_eks_pool("c"))
    await eks.ready()
    assert eks.cloud.most_at_once["Nodegroup"] > 1


async def test_case_48_a_changed_maximum_is_one_update_of_its_pool(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool("a", maxNodeCount=4), an_eks_pool("b"))
    await eks.ready()
    created = len(eks.cloud.written("create"))
    await eks.apply(an_eks_pool("a", maxNodeCount=6, nodeCount=2), an_eks_pool("b"))
    await eks.until_cloud(lambda cloud: bool(cloud.written("update")))
    await eks.ready()
    assert (eks.cloud.written("update"), len(eks.cloud.written("create"))) == (["pool/a"], created)
    assert [message.split(":")[0] for reason, message in await eks.events() if reason == "CountUnused"] == ["pool a"]


async def test_case_50_what_cannot_be_changed_is_said_and_forgotten_when_it_is_taken_back(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool(maxNodeCount=4))
    await eks.ready()
    eks.cloud.replaced.add("pool/gpu")
    await eks.apply(an_eks_pool(maxNodeCount=6))
    seen = await eks.until(lambda seen: "ReplaceRequired" in seen["message"])
    assert seen["usable"]
    written = len(eks.cloud.calls) - len(eks.cloud.written("plan"))
    await eks.apply(an_eks_pool(maxNodeCount=4))
    seen = await eks.ready()
    assert (seen["message"], len(eks.cloud.calls) - len(eks.cloud.written("plan"))) == ("", written)


async def test_case_55_a_pool_that_is_removed_goes_when_no_replica_may_use_it(gke: CloudPlane) -> None:
    await gke.apply(a_pool("a"), a_pool("b"))
    await gke.ready()
    await gke.apply(a_pool("a"))
    await gke.settled()
    assert gke.cloud.written("delete") == [], "it waits until it is drained"
    await gke.apply(a_pool("a"), removable=("b",))
    await gke.until(lambda seen: "pool/b" not in [each["key"] for each in seen["objects"]])
    assert gke.cloud.written("delete") == ["pool/b"]


async def test_case_16_a_pool_whose_class_is_for_another_cloud_is_left_out_and_the_others_are_built(gke: CloudPlane) -> None:
    await gke.apply(a_pool("a"), a_pool("b", className="g6"))
    seen = await gke.until(lambda seen: seen["usable"] and row(seen, "pool/a")["phase"] == "Ready")
    assert (seen["ready"], seen["reason"]) == (False, "InvalidNodePool")
    assert "pool b: InferenceClass g6 has no spec.provisioning.gke" in seen["message"]
    assert "pool/b" not in gke.cloud.things


async def test_case_17_a_class_that_is_deleted_takes_nothing_away(gke: CloudPlane) -> None:
    await gke.apply(a_pool("a"), a_pool("b"))
    await gke.ready()
    before = set(gke.cloud.things)
    await gke.apply(a_pool("a"), a_pool("b"), classes={})
    seen = await gke.settled()
    assert seen["ready"]
    assert (set(gke.cloud.things), gke.cloud.written("delete"), gke.cloud.written("update")) == (before, [], [])


async def test_case_9_a_zone_of_another_region_is_refused_before_anything_is_created(gke: CloudPlane) -> None:
    await gke.apply(a_pool(zones=["us-east1-b"]))
    seen = await gke.until(lambda seen: bool(seen["message"]))
    assert "not in region europe-west4" in seen["message"]
    assert gke.cloud.written("create") == []
    await gke.apply(a_pool())
    await gke.ready()


async def test_what_is_refused_later_changes_nothing_of_what_there_is(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    before = set(gke.cloud.things)
    await gke.apply(a_pool(zones=["us-east1-b"]))
    seen = await gke.settled()
    assert "not in region" in seen["message"]
    assert (set(gke.cloud.things), gke.cloud.written("delete")) == (before, [])


async def test_prv_7_5_the_entry_of_another_role_replaces_that_of_the_one_before(eks: CloudPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    rotated = f"{ROLE}-rotated"
    monkeypatch.setattr(scripted_cloud, "ROLE", rotated)
    await eks.apply(an_eks_pool())
    await eks.until_cloud(lambda cloud: [key for key in cloud.things if key.startswith("access/")] == [access_key(rotated)])
    await eks.ready()
    assert eks.cloud.written("delete") == [access_key(ROLE)]


# --- what others do there -----------------------------------------------------------------------------------------------------------------


async def test_case_56_what_was_changed_by_hand_is_put_back(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    eks.cloud.things["net/routes-public"].content = "another route"
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: cloud.written("update") == ["net/routes-public"])
    await eks.ready()
    assert "DriftDetected" in [reason for reason, _ in await eks.events()]


async def test_case_56_an_entry_of_access_that_was_deleted_by_hand_is_put_back_though_its_cluster_lets_nobody_in(eks: CloudPlane) -> None:
    eks.cluster.shut = lambda: access_key(ROLE) not in eks.cloud.things
    await eks.apply(an_eks_pool())
    await eks.ready()
    del eks.cloud.things[access_key(ROLE)]
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: access_key(ROLE) in cloud.things, "the entry")
    await eks.ready()
    events = await eks.events()
    assert "CredentialsInvalid" not in [reason for reason, _ in events], "nothing was paused"
    assert any(reason == "NotObserved" and "401" in message for reason, message in events)


async def test_case_56_one_object_that_may_not_be_looked_at_hides_no_change_of_another(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    eks.cloud.refuse["look", "iam/cluster"] = [PermissionDenied("iam:GetRole")] * 100
    eks.cloud.things["net/routes-public"].content = "another route"
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: cloud.written("update") == ["net/routes-public"], "the route")
    assert ("NotObserved", "PermissionDenied: iam:GetRole") in [(reason, text.rpartition("): ")[2]) for reason, text in await eks.events()]


async def test_case_57_a_pool_that_was_deleted_by_hand_is_built_again_in_the_next_epoch(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    token = eks.cloud.things.pop("pool/gpu").token
    await eks.retry_now()
    await eks.until_cloud(lambda cloud: "pool/gpu" in cloud.things)
    seen = await eks.ready()
    assert row(seen, "pool/gpu")["epoch"] == 1
    assert eks.cloud.things["pool/gpu"].token != token, "the cloud would give the old answer for the old token"
    assert "CloudObjectMissing" in [reason for reason, _ in await eks.events()]


async def test_case_58_a_cluster_that_was_deleted_by_hand_is_built_again_only_when_a_person_says_so(gke: CloudPlane) -> None:
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


async def test_case_58_a_change_of_a_cluster_that_was_deleted_by_hand_does_not_create_it_before_it_is_seen_gone(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    for key in ("cluster", "pool/gpu"):
        del gke.cloud.things[key]
    created = len(gke.cloud.written("create"))
    await gke.apply(a_pool(), kubernetesVersion="1.36")
    seen = await gke.until(lambda seen: "modelplane retry" in seen["message"])
    assert (seen["usable"], len(gke.cloud.written("create"))) == (False, created)


async def test_case_60_a_pool_that_fails_later_is_kept_and_the_cluster_stays_usable(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    thing = gke.cloud.things["pool/gpu"]
    thing.state, thing.reason = type(thing.state)("Broken"), "status ERROR: quota of addresses"
    await gke.retry_now()
    seen = await gke.until(lambda seen: "status ERROR: quota of addresses" in seen["message"])
    assert (seen["usable"], gke.cloud.written("delete")) == (True, [])
    thing.state = type(thing.state)("Ready")
    await gke.retry_now()


# --- lost and late ------------------------------------------------------------------------------------------------------------------------


async def test_case_77_a_workflow_that_lost_its_history_finds_everything_and_creates_nothing(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    created = len(eks.cloud.written("create"))
    await eks.handle.terminate("lost")
    await eks.apply(an_eks_pool())
    await eks.ready()
    assert len(eks.cloud.written("create")) == created


async def test_case_58_77_a_control_plane_that_went_when_the_history_was_lost_is_not_created_again_by_itself(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    await gke.handle.terminate("lost")
    for key in ("cluster", "pool/gpu"):
        del gke.cloud.things[key]
    created = len(gke.cloud.written("create"))
    known = {"was_usable": True, "was_ready": True}
    await gke.send(CloudClusterSignals.APPLY, gke.order(a_pool()).model_copy(update=known))
    seen = await gke.until(lambda seen: "modelplane retry" in seen["message"] or "cluster" in gke.cloud.things)
    assert (seen["usable"], len(gke.cloud.written("create"))) == (False, created)


async def test_a_workflow_that_lost_its_history_deletes_everything_of_the_order_that_it_is_given(eks: CloudPlane) -> None:
    await eks.apply(an_eks_pool())
    await eks.ready()
    await eks.handle.terminate("lost")
    await eks.delete(order=eks.order(an_eks_pool()))
    await eks.gone()
    assert eks.cloud.things == {}


async def test_what_arrives_after_the_end_starts_nothing(gke: CloudPlane) -> None:
    await gke.apply(a_pool())
    await gke.ready()
    await gke.delete()
    await gke.gone()
    assert not await gke.send(CloudClusterSignals.APPLY, gke.order(a_pool()))
    assert gke.cloud.things == {}


async def test_case_73_an_order_after_the_deletion_is_refused(gke: CloudPlane) -> None:
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
