"""The deletion order in the real object graphs of both clouds. These tests are pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.clouds.desired.plan import Desired
from activities.clouds.desired.wire import to_wire
from activities.clouds.eks.handlers.table import WORK
from activities.clouds.eks.wanted.inputs import EksFacts
from api_types.messages.clouds import CloudAccount, CloudObject, CloudOrder, CloudPlan
from tests.activities.clouds.builders import (
    INSTALLATION,
    ROLE,
    UID,
    a_pool,
    an_eks_pool,
    eks,
    gke,
)
from workflows.cloud_cluster import graph
from workflows.cloud_cluster.state import CloudState, InventoryEntry
from workflows.entity.failures import Failure

NOW = datetime(2026, 11, 26, tzinfo=UTC)
EFA = {"className": "p5en", "fabric": {"type": "EFA"}}
# The base of a control plane, and objects that nodes, pods and controllers use until
# the end.
BENEATH = ("net/", "iam/", "sg/", "efs", "api/")


def objects_of(desired: Desired) -> list[CloudObject]:
    """Return the objects of a plan. The objects of a pool name their pool."""
    own = {f"{kind}/{name}": name for kind in ("pool", "lt") for name in ("gpu", "efa")}
    return [
        to_wire(each, WORK.get(each.kind, "Quick"), own.get(each.key, ""))
        for each in desired.objects
    ]


def a_state(
    provider: Any, objects: list[CloudObject], wanted: list[CloudObject] | None = None
) -> CloudState:
    """Return a cluster with these Ready objects and these wanted keys, without limits
    on parallel work.
    """
    account = CloudAccount(
        provider=provider,
        cluster="prod",
        cluster_uid=UID,
        secret="s",  # noqa: S106
        region="r",
        installation=INSTALLATION,
    )
    state = CloudState(account=account)
    state.plan = CloudPlan(
        account=account,
        cloud_cluster="prod",
        objects=wanted if wanted is not None else objects,
        parallel=100,
        drain_seconds=1800,
    )
    for each in objects:
        state.inventory[each.key] = InventoryEntry(
            object=each, phase="Ready", made=each.digest, was_ready=True, tried=True
        )
    return state


def waves(state: CloudState) -> list[list[str]]:
    """Return the keys that are deleted together, wave by wave, until nothing is left."""
    found = list[list[str]]()
    while wave := [entry.object.key for entry in graph.to_delete(state, [], NOW)]:
        found.append(wave)
        for key in wave:
            state.inventory[key].phase = "Absent"
        graph.note_cluster_gone(state)
    assert all(entry.gone for entry in state.inventory.values())
    return found


CLUSTERS = {
    "EKS": eks(an_eks_pool(), an_eks_pool("efa", **EFA)),
    "GKE": gke(a_pool()),
}


@pytest.mark.parametrize("provider", CLUSTERS)
def test_network_and_roles_stay_until_the_control_plane_is_gone(
    provider: str,
) -> None:
    when = at_of(waves(a_state(provider, objects_of(CLUSTERS[provider]))))
    beneath = [key for key in when if key.startswith(BENEATH)]
    assert beneath
    assert all(when[key] > when["cluster"] for key in beneath)
    above = [key for key in when if key not in beneath and key != "cluster"]
    assert all(when[key] < when["cluster"] for key in above)


def test_the_objects_of_eks_are_deleted_in_the_documented_order() -> None:
    when = at_of(waves(a_state("EKS", objects_of(CLUSTERS["EKS"]))))
    assert (
        when["chart/cluster-autoscaler"]
        < when["pool/efa"]
        < when["lt/efa"]
        < when["cluster"]
        < when["sg/efa"]
        < when["net/vpc"]
    )
    assert when["addon/coredns"] < when["pool/system"] < when["cluster"]
    assert when["efs/mounts"] < when["efs"]
    assert when["efs/mounts"] < when["sg/efs"] < when["net/vpc"]
    assert when["net/routes-private"] < when["net/nat"] < when["net/eip"]
    assert when["cluster"] < when["iam/node"]


def test_network_and_roles_are_deleted_if_there_was_never_a_control_plane() -> None:
    state = a_state(
        "EKS",
        [each for each in objects_of(CLUSTERS["EKS"]) if each.key.startswith(BENEATH)],
    )
    first, second, *_ = waves(state)
    assert "net/routes-private" in first
    assert "net/routes-public" in second, "private routes need public ones"


def at_of(found: list[list[str]]) -> Mapping[str, int]:
    """Return the wave number of each key."""
    return {key: number for number, wave in enumerate(found) for key in wave}


# Objects that are not wanted any more


def removable(state: CloudState, *pools: str) -> set[str]:
    """Return the keys that may be deleted while these pools are in the spec."""
    manifest = {"spec": {"nodePools": [{"name": name} for name in pools]}}
    state.order = CloudOrder(uid=UID, sequence=1, generation=1, manifest=manifest)
    return {entry.object.key for entry in graph.to_remove(state, [], NOW)}


def test_the_efa_driver_stays_until_the_last_efa_pool_is_gone() -> None:
    everything, wanted = objects_of(CLUSTERS["EKS"]), objects_of(eks(an_eks_pool()))
    state = a_state("EKS", everything, wanted)
    assert removable(state, "gpu") == set(), "the pool drains, with running replicas"
    del state.inventory["pool/efa"]
    assert removable(state, "gpu") == set(), "its template drains with it"
    del state.inventory["lt/efa"]
    assert removable(state, "gpu") == {"chart/aws-dranet", "sg/efa"}


def test_an_access_entry_stays_until_another_role_has_access() -> None:
    before = objects_of(CLUSTERS["EKS"])
    rotated = EksFacts(
        zones=("us-east-2a", "us-east-2b", "us-east-2c"), principal=f"{ROLE}-rotated"
    )
    wanted = objects_of(eks(an_eks_pool(), an_eks_pool("efa", **EFA), facts=rotated))
    state = a_state("EKS", before, wanted)
    state.inventory["conn"].object = next(each for each in wanted if each.key == "conn")
    old = next(each.key for each in before if each.kind == "AccessEntry")
    new = next(each for each in wanted if each.kind == "AccessEntry")
    assert removable(state, "gpu", "efa") == set()
    state.inventory[new.key] = InventoryEntry(
        object=new, phase="Ready", failure=Failure("PermissionDenied", "no")
    )
    assert removable(state, "gpu", "efa") == set()
    state.inventory[new.key] = InventoryEntry(
        object=new, phase="Ready", made=new.digest, was_ready=True, tried=True
    )
    assert removable(state, "gpu", "efa") == {old}


def test_an_access_entry_is_deleted_with_the_control_plane_even_if_pools_remain() -> (
    None
):
    state = a_state("EKS", objects_of(CLUSTERS["EKS"]))
    state.deleted_pools = True
    keys = [key for wave in waves(state) for key in wave]
    assert not [key for key in keys if key.startswith("access/")]
    assert "addon/vpc-cni" in keys


def test_the_efa_driver_stays_for_a_pool_that_cannot_be_changed_in_place() -> None:
    state = a_state(
        "EKS",
        objects_of(CLUSTERS["EKS"]),
        objects_of(eks(an_eks_pool(), an_eks_pool("efa", className="p5en"))),
    )
    assert removable(state, "gpu", "efa") == set(), "its nodes still have EFA"


# Objects that may be made


def wanted(
    key: str, *needs: str, work: Any = "Quick", digest: str = "2"
) -> CloudObject:
    return CloudObject(
        key=key, kind="Network", name=key, needs=list(needs), work=work, digest=digest
    )


def an_entry(key: str, **fields: Any) -> InventoryEntry:
    """Return the entry of an object that exists as wanted."""
    each = wanted(key)
    return InventoryEntry(
        **{
            "object": each,
            "phase": "Ready",
            "made": each.digest,
            "was_ready": True,
            **fields,
        }
    )


LATER, EARLIER = ((NOW + timedelta(seconds=seconds)).isoformat() for seconds in (1, -1))
FAILED = Failure("Quota", "no room")


@pytest.mark.parametrize(
    ("entries", "running", "begun"),
    [
        ([], [], ["a", "c"]),
        ([], ["a"], ["c"]),
        ([an_entry("a")], [], ["b", "c"]),
        ([an_entry("a")], ["a"], ["c"]),
        ([an_entry("a", made="1")], [], ["a", "c"]),
        ([an_entry("a", made="1", failure=FAILED, retry_at=LATER)], [], ["b", "c"]),
        (
            [an_entry("a", made="1", failure=FAILED, retry_at=EARLIER)],
            [],
            ["a", "b", "c"],
        ),
        ([an_entry("a", phase="Waiting", failure=FAILED, retry_at=LATER)], [], ["c"]),
        ([an_entry("a", phase="Absent", held=True)], [], ["c"]),
        ([an_entry("a"), an_entry("b"), an_entry("c")], [], []),
    ],
    ids=[
        "at first",
        "one runs",
        "the need is met",
        "the need is being checked",
        "the need has changed",
        "the need cannot be changed for now",
        "it is tried again",
        "the need was never met",
        "a person has to decide",
        "everything is there",
    ],
)
def test_an_object_with_all_its_dependencies_is_started(
    entries: list[InventoryEntry], running: list[str], begun: list[str]
) -> None:
    state = a_state("EKS", [], [wanted("a"), wanted("b", "a"), wanted("c", "unknown")])
    state.inventory = {entry.object.key: entry for entry in entries}
    assert [each.key for each in graph.to_ensure(state, running, NOW)] == begun


POOLS = [f"p{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("provider", "parallel", "running", "begun"),
    [
        ("GKE", 9, [], [*POOLS[:5], "n"]),
        ("GKE", 9, ["p0"], [*POOLS[1:5], "n"]),
        ("EKS", 9, [], [*POOLS, "n"]),
        ("EKS", 9, ["p0"], [*POOLS[1:], "n"]),
        ("EKS", 1, POOLS, ["n"]),
        ("EKS", 1, ["n"], POOLS),
        ("GKE", 1, ["n"], POOLS[:5]),
    ],
)
def test_pools_that_may_wait_for_machines_hold_up_no_other_activity(
    provider: str, parallel: int, running: list[str], begun: list[str]
) -> None:
    objects = [
        *(wanted(key, work="NodePool") for key in POOLS),
        wanted("n"),
    ]
    state = a_state(provider, [], objects)
    assert state.plan is not None
    state.plan = state.plan.model_copy(update={"parallel": parallel})
    state.inventory = {each.key: InventoryEntry(object=each) for each in objects}
    assert [each.key for each in graph.to_ensure(state, running, NOW)] == begun


def test_nothing_is_created_before_there_is_a_plan() -> None:
    assert graph.to_ensure(CloudState(), [], NOW) == []
