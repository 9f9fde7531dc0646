"""The activities of a CloudCluster at a cloud of the test: what a look says, and how work on one object goes on or ends."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.clouds.accounts import CloudAccounts
from activities.clouds.activities import CloudActivities
from activities.clouds.graph import Call, DesiredObject
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.ensure import ensure
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.clouds.lifecycle.pace import Pace
from activities.clouds.lifecycle.threads import CALLS_AT_ONCE
from activities.clouds.owner import owner_named
from activities.clouds.wire import to_wire
from api_types.errors import (
    CloudObjectBroken,
    CredentialsInvalid,
    Dependency,
    InvalidInput,
    NotYet,
    PermissionDenied,
    ReplaceRequired,
    ServerError,
    Throttled,
    TransientError,
)
from api_types.messages.clouds import (
    LEFTOVERS_MAX,
    AuditCloud,
    CloudAccount,
    CloudAudit,
    CloudObjectOrder,
    CloudObjectShown,
    Leftover,
    ObserveCloud,
)
from api_types.names import cloud_cluster_id
from api_types.sections.clouds import ProvisionSettings
from tests.activities.environment.asking import asked_by
from tests.environment.scripted_cloud import GOOD
from tests.workflows.cloud_cluster.control_plane import Secrets

PACE = Pace(poll=0.001, poll_later=0.001, second_look=0.02, second_look_every=0.002)
# For objects that show themselves: a busy machine may let 20 ms pass before the second look.
PATIENT = replace(PACE, second_look=60.0)
ACCOUNT = CloudAccount(provider="GKE", cluster="prod", cluster_uid="u", secret="gke-default", region="europe-west4", installation="acme")  # noqa: S106
OWN = cloud_cluster_id("prod", "u")
IN_CLUSTER = "Connection"


@dataclass
class Scenes:
    """A handler whose looks are told, the last one for ever; an error is raised. What it does is kept."""

    scenes: list[Found | Exception | Callable[[], Found]]
    done: list[str] = field(default_factory=list)

    def look(self, wanted: Wanted) -> Found:
        del wanted
        scene = self.scenes.pop(0) if len(self.scenes) > 1 else self.scenes[0]
        if isinstance(scene, Exception):
            raise scene
        return scene if isinstance(scene, Found) else scene()

    def create(self, wanted: Wanted) -> None:
        self.done.append(f"create {wanted.epoch}")

    def update(self, wanted: Wanted, found: Found) -> None:
        del wanted
        self.done.append(f"update {', '.join(found.changes)}")

    def delete(self, wanted: Wanted, found: Found) -> None:
        del wanted
        self.done.append(f"delete {found.id}")


@dataclass
class Provider:
    """A cloud with these handlers, by kind."""

    handlers: Mapping[str, Scenes]
    left: list[Leftover] = field(default_factory=list)
    undeletable: Mapping[str, Exception] = field(default_factory=dict)
    """Why leftovers cannot be deleted, by id."""
    asked_in: list[threading.Thread] = field(default_factory=list)

    def pinned(self, account: CloudAccount) -> CloudAccount:
        return account

    def audit(self, order: AuditCloud) -> list[Leftover]:
        del order
        return list(self.left)

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        del order
        if leftover.id in self.undeletable:
            raise self.undeletable[leftover.id]
        self.left.remove(leftover)

    def handler(self, account: CloudAccount, kind: str) -> Scenes:
        del account
        self.asked_in.append(threading.current_thread())
        return self.handlers[kind]


class Refusing:
    """The API server of a cluster that lets nobody in."""

    async def at(self, connection: Any) -> Any:
        del connection
        raise CredentialsInvalid("the API server does not accept this credential (401)")


def an_object(kind: str) -> DesiredObject:
    return DesiredObject(kind.lower(), kind, "prod-1", (), (Call("s", "create", {}),), "ready")


def activities(*providers: tuple[str, Provider]) -> CloudActivities:
    """Activities of a worker with these clouds."""
    nothing: Any = None
    factories: Any = {name: partial(_opened, provider) for name, provider in providers}
    accounts = CloudAccounts(Secrets(), factories, ProvisionSettings(installation_id="acme"))
    clusters: Any = Refusing()
    return CloudActivities(accounts, InCluster(clusters, nothing), ProvisionSettings(installation_id="acme"), PACE)


def _opened(provider: Provider, credential: str, region: str) -> Provider:
    del credential, region
    return provider


async def looked(**scenes: Found | Exception) -> dict[str, CloudObjectShown]:
    """Look at these objects, by kind, and at the connection."""
    work = activities(("GKE", Provider({kind: Scenes([scene]) for kind, scene in scenes.items()})))
    objects = [to_wire(an_object(kind), "Quick") for kind in (*scenes, IN_CLUSTER)]
    seen = await asked_by(OWN).run(work.observe_cloud, ObserveCloud(account=ACCOUNT, objects=objects))
    return {each.kind: each for each in seen.objects}


# --- looks --------------------------------------------------------------------------------------------------------------------------------


async def test_prv_56_an_object_that_cannot_be_looked_at_is_unknown_with_the_reason_and_hides_no_other() -> None:
    seen = await looked(Role=PermissionDenied("iam:GetRole"), AccessEntry=ABSENT, VPC=Found(State.READY, "vpc-1"))
    assert {kind: each.phase for kind, each in seen.items()} == {
        "Role": "Unknown",
        "AccessEntry": "Absent",
        "VPC": "Ready",
        IN_CLUSTER: "Unknown",
    }
    assert (seen["Role"].message, "401" in seen[IN_CLUSTER].message) == ("PermissionDenied: iam:GetRole", True)


async def test_prv_18_a_credential_that_the_cloud_refuses_ends_the_look() -> None:
    with pytest.raises(CredentialsInvalid, match="expired"):
        await looked(Role=CredentialsInvalid("expired"))


async def test_an_object_that_is_there_twice_is_shown_to_differ_so_that_work_on_it_deletes_the_other() -> None:
    seen = await looked(VPC=Found(State.READY, "vpc-1", duplicates=("vpc-2",)))
    assert (seen["VPC"].phase, seen["VPC"].message) == ("Differs", "it is there more than once: vpc-2")


async def test_an_object_that_is_gone_and_cannot_be_had_again_is_shown_as_broken() -> None:
    seen = await looked(VPC=Found(State.ABSENT, reason="VPC vpc-1 is gone", cause=ReplaceRequired))
    assert (seen["VPC"].phase, seen["VPC"].message) == ("Broken", "VPC vpc-1 is gone")


# --- work on one object -------------------------------------------------------------------------------------------------------------------


def wanted(known_id: str = "", epoch: int = 0) -> Wanted:
    known = {"vpc": {"id": known_id}} if known_id else {}
    return Wanted(owner_named("acme", "prod", "u"), an_object("VPC"), known, "token", epoch)


async def ensured(handler: Scenes, work: Wanted) -> Found:
    return await ensure(handler, work, PACE, lambda _: None)


async def test_prv_57_an_object_that_was_known_and_is_gone_is_left_to_the_next_epoch() -> None:
    """The cloud gives the old answer for the token of before: the gateway that is deleted."""
    gone = Scenes([ABSENT])
    assert (await ensured(gone, wanted("nat-1"))).state is State.ABSENT
    assert gone.done == []


async def test_an_object_that_goes_while_it_is_waited_for_is_not_created_again_by_the_same_attempt() -> None:
    """It may be a worker that lost Temporal: its cluster is deleted meanwhile."""
    going = Scenes([Found(State.PENDING, "nat-1"), ABSENT])
    assert (await ensured(going, wanted())).state is State.ABSENT
    assert going.done == []


async def test_an_object_that_goes_before_it_is_seen_is_left_to_the_next_epoch() -> None:
    """The cloud gives the old answer for the token: that it is created."""
    gone = Scenes([ABSENT])
    assert (await ensured(gone, wanted())).state is State.ABSENT
    assert gone.done == ["create 0"] * 3


async def test_what_is_waited_for_before_an_object_can_be_created_is_not_the_object() -> None:
    busy = Scenes([Found(State.PENDING, reason="operation op-1 runs"), ABSENT, Found(State.READY, "gpu")])
    assert (await ensured(busy, wanted())).state is State.READY
    assert busy.done == ["create 0"]


async def test_prv_25_an_object_that_is_listed_late_counts_as_there() -> None:
    late = Scenes([Found(State.PENDING, "nat-1"), Found(State.ABSENT, uncertain=True), Found(State.READY, "nat-1")])
    assert (await ensured(late, wanted())).state is State.READY
    assert late.done == []


async def test_prv_71_an_object_that_is_listed_late_is_deleted() -> None:
    scenes = Scenes([Found(State.ABSENT, uncertain=True), Found(State.ABSENT, uncertain=True), Found(State.READY, "x"), ABSENT])
    work = replace(activities(("GKE", Provider({"Address": scenes}))), pace=PATIENT)
    order = CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("Address"), "Quick"), again=True)
    gone = await asked_by(OWN).run(work.delete_cloud_object, order)
    assert (gone.phase, scenes.done) == ("Absent", ["delete x"])


async def test_an_object_that_cannot_be_had_again_is_not_created() -> None:
    gone = Scenes([Found(State.ABSENT, reason="vpc-1 is gone, and cluster cannot move", cause=ReplaceRequired)])
    with pytest.raises(ReplaceRequired, match="cluster cannot move"):
        await ensured(gone, wanted("vpc-1"))
    assert gone.done == []


async def test_a_change_without_effect_is_made_three_times_and_then_said() -> None:
    same = Scenes([Found(State.DIFFERS, "gpu", changes=("counts",), reason="status ACTIVE")])
    with pytest.raises(CloudObjectBroken, match=r"was changed 3 times, and still differs in counts \(status ACTIVE\)"):
        await ensured(same, wanted())
    assert same.done == ["update counts"] * 3


async def test_changes_that_follow_one_another_are_all_made() -> None:
    steps = Scenes(
        [*(Found(State.DIFFERS, "cluster", changes=("version",), reason=f"1.{minor}") for minor in range(6)), Found(State.READY)]
    )
    assert (await ensured(steps, wanted())).state is State.READY
    assert len(steps.done) == 6


TOLD = [
    ("4.2, 4.3 what an object needs is not found for two minutes", NotYet, 121, True),
    ("4.2, 4.3 it may have been created just now", NotYet, 119, False),
    ("4.1 trouble lasts for half an hour", ServerError, 1801, True),
    ("4.1 trouble may pass", ServerError, 1799, False),
]


@pytest.mark.parametrize(("error", "seconds", "told"), [row[1:] for row in TOLD], ids=[row[0] for row in TOLD])
async def test_prv_4_the_workflow_is_told_of_what_lasts(error: type[TransientError], seconds: int, told: bool) -> None:
    provider = Provider({"Subnets": Scenes([error("InvalidVpcID.NotFound: vpc-1 does not exist")])})
    began = ActivityEnvironment.default_info().scheduled_time.timestamp()
    work = replace(activities(("GKE", provider)), clock=lambda: began + seconds)
    order = CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("Subnets"), "Quick"))
    with pytest.raises(ApplicationError, match="vpc-1 does not exist") as failed:
        await asked_by(OWN).run(work.ensure_cloud_object, order)
    assert (failed.value.type, failed.value.non_retryable) == (error.__name__, told)


# --- threads ------------------------------------------------------------------------------------------------------------------------------


async def test_a_cloud_is_asked_whose_a_credential_is_in_a_thread() -> None:
    """AWS is asked at the first use of a credential, by whichever activity that is."""
    provider = Provider({"VPC": Scenes([ABSENT]), "Role": Scenes([Found(State.READY, "r")])})
    work, run = activities(("GKE", provider)), asked_by(OWN).run
    await run(work.ensure_cloud_object, CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("Role"), "Quick")))
    await run(work.delete_cloud_object, CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("VPC"), "Quick")))
    await run(work.observe_cloud, ObserveCloud(account=ACCOUNT, objects=[to_wire(an_object("Role"), "Quick")]))
    assert [thread is threading.main_thread() for thread in provider.asked_in] == [False] * 3


async def test_a_cloud_that_does_not_answer_holds_up_nobody_else() -> None:
    answers = threading.Event()

    def hangs() -> Found:
        answers.wait(30)
        return Found(State.READY, "vpc-1")

    work = activities(("GKE", Provider({"VPC": Scenes([hangs])})), ("EKS", Provider({"VPC": Scenes([Found(State.READY, "vpc-2")])})))
    # Other tests leave threads of this name.
    before = set(threading.enumerate())
    order = CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("VPC"), "Quick"))
    held = [asyncio.create_task(asked_by(OWN).run(work.ensure_cloud_object, order)) for _ in range(10 * CALLS_AT_ONCE)]
    try:
        other = order.model_copy(update={"account": ACCOUNT.model_copy(update={"provider": "EKS", "secret": "eks-default"})})
        found = await asyncio.wait_for(asked_by(OWN).run(work.ensure_cloud_object, other), 10)
        assert found.phase == "Ready"
        assert await asyncio.wait_for(asyncio.to_thread(lambda: GOOD), 10) == GOOD
        begun = set(threading.enumerate()) - before
        assert sum(thread.name.startswith("GKE-gke-default") for thread in begun) == CALLS_AT_ONCE
    finally:
        answers.set()
    assert {each.phase for each in await asyncio.gather(*held)} == {"Ready"}


# --- leftovers ----------------------------------------------------------------------------------------------------------------------------


def a_leftover(name: str, evidence: str = "a tag", *, ours: bool = True) -> Leftover:
    return Leftover(kind="Disk", id=name, evidence=evidence, ours=ours)


async def audited(provider: Provider) -> CloudAudit:
    found: CloudAudit = await asked_by(OWN).run(activities(("GKE", provider)).audit_cloud, AuditCloud(account=ACCOUNT, sweep=True))
    return found


@pytest.mark.parametrize("error", [Dependency, InvalidInput, PermissionDenied, ServerError], ids=lambda each: each.__name__)
async def test_a_leftover_that_cannot_be_deleted_holds_up_no_other(error: Any) -> None:
    provider = Provider({}, [a_leftover("a"), a_leftover("b"), a_leftover("c")], {"b": error("it is protected")})
    found = await audited(provider)
    assert [each.id for each in found.swept] == ["a", "c"]
    assert [(each.id, each.evidence) for each in found.leftovers] == [("b", f"{error.__name__}: it is protected; a tag")]


@pytest.mark.parametrize("error", [CredentialsInvalid, Throttled], ids=lambda each: each.__name__)
async def test_a_credential_that_is_refused_and_a_cloud_that_asks_for_patience_end_the_sweep(error: Any) -> None:
    provider = Provider({}, [a_leftover("a"), a_leftover("b")], {"a": error("no")})
    with pytest.raises((CredentialsInvalid, ApplicationError), match="no"):
        await audited(provider)
    assert [each.id for each in provider.left] == ["a", "b"]


async def test_prv_9_2_what_the_pools_of_a_lost_inventory_stand_on_stays_until_they_are_gone() -> None:
    left = [
        Leftover(kind=kind, id=identity, ours=True, key=key)
        for kind, identity, key in (
            ("NetworkInterface", "eni-1", ""),
            ("Nodegroup", "a", "pool/a"),
            ("Nodegroup", "b", "pool/b"),
            ("NatGateway", "nat-1", "net/nat"),
            ("Role", "node", "iam/node"),
            ("Volume", "vol-1", ""),
        )
    ]
    provider = Provider({}, left, {"a": Dependency("it is being deleted")})
    found = await audited(provider)
    assert [each.id for each in found.swept] == ["eni-1", "b", "vol-1"]
    assert [each.id for each in found.leftovers] == ["a", "nat-1", "node"]
    provider.undeletable = {}
    found = await audited(provider)
    assert ([each.id for each in found.swept], found.leftovers) == (["a", "nat-1", "node"], [])


async def test_what_is_listed_can_be_carried_however_much_others_have_put_there() -> None:
    """A workflow that carries more than Temporal takes is terminated, and then nobody looks after what it has."""
    planted = [
        a_leftover(f"projects/p/firewalls/{number}", "kubernetes.io/" + "x" * 2000, ours=False) for number in range(2 * LEFTOVERS_MAX)
    ]
    provider = Provider({}, [*planted, a_leftover("ours")], {"ours": Dependency("it is used")})
    found = await audited(provider)
    assert (len(found.leftovers), found.more, found.leftovers[0].id) == (LEFTOVERS_MAX, LEFTOVERS_MAX + 1, "ours")
    assert len(found.model_dump_json()) < 256 * 1024
