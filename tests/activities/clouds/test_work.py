"""The activities of a CloudCluster at a fake cloud: observations, and work on one
object.
"""

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
from activities.clouds.desired.graph import CloudCall, DesiredObject
from activities.clouds.desired.owner import owner_named
from activities.clouds.desired.wire import to_wire
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.ensure import ensure
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.lifecycle.threads import CALLS_AT_ONCE
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
    CLUSTER_KEY,
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

PACE = PollPace(poll=0.001, poll_later=0.001, second_look=0.02, second_look_every=0.002)
# For objects that appear by themselves. A busy machine may need 20 ms before the second
# check.
PATIENT = replace(PACE, second_look=60.0)
ACCOUNT = CloudAccount(
    provider="GKE",
    cluster="prod",
    cluster_uid="u",
    secret="gke-default",  # noqa: S106
    region="europe-west4",
    installation="acme",
)
OWN = cloud_cluster_id("prod", "u")
IN_CLUSTER = "Connection"


@dataclass
class Scenes:
    """A handler with scripted observations.

    The last one repeats, and errors are raised.

    Its writes are recorded.
    """

    scenes: list[CloudObservation | Exception | Callable[[], CloudObservation]]
    done: list[str] = field(default_factory=list)

    def look(self, wanted: ObjectWork) -> CloudObservation:
        del wanted
        scene = self.scenes.pop(0) if len(self.scenes) > 1 else self.scenes[0]
        if isinstance(scene, Exception):
            raise scene
        return scene if isinstance(scene, CloudObservation) else scene()

    def create(self, wanted: ObjectWork) -> None:
        self.done.append(f"create {wanted.epoch}")

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        del wanted
        self.done.append(f"update {', '.join(found.changes)}")

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        del wanted
        self.done.append(f"delete {found.id}")


@dataclass
class Provider:
    """A cloud with these handlers, by kind."""

    handlers: Mapping[str, Scenes]
    left: list[Leftover] = field(default_factory=list)
    undeletable: Mapping[str, Exception] = field(default_factory=dict)
    """The errors of leftovers that cannot be deleted, by id."""
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
    """A cluster whose API server rejects every connection."""

    async def at(self, connection: Any) -> Any:
        del connection
        raise CredentialsInvalid("the API server does not accept this credential (401)")


def an_object(kind: str) -> DesiredObject:
    return DesiredObject(
        kind.lower(), kind, "prod-1", (), (CloudCall("s", "create", {}),), "ready"
    )


def activities(*providers: tuple[str, Provider]) -> CloudActivities:
    """Activities of a worker with these clouds."""
    nothing: Any = None
    factories: Any = {name: partial(_opened, provider) for name, provider in providers}
    accounts = CloudAccounts(
        Secrets(), factories, ProvisionSettings(installation_id="acme")
    )
    clusters: Any = Refusing()
    return CloudActivities(
        accounts,
        InCluster(clusters, nothing),
        ProvisionSettings(installation_id="acme"),
        PACE,
    )


def _opened(provider: Provider, credential: str, region: str) -> Provider:
    del credential, region
    return provider


async def looked(**scenes: CloudObservation | Exception) -> dict[str, CloudObjectShown]:
    """Observe these objects, by kind, and the connection."""
    work = activities(
        ("GKE", Provider({kind: Scenes([scene]) for kind, scene in scenes.items()}))
    )
    objects = [to_wire(an_object(kind), "Quick") for kind in (*scenes, IN_CLUSTER)]
    seen = await asked_by(OWN).run(
        work.observe_cloud, ObserveCloud(account=ACCOUNT, objects=objects)
    )
    return {each.kind: each for each in seen.objects}


# Observations


async def test_an_object_that_lost_its_tags_is_unknown_with_the_reason() -> None:
    text = "vpc-1 has lost its tag modelplane.ai/owner"
    seen = await looked(VPC=CloudObservation(State.FOREIGN, reason=text))
    assert (seen["VPC"].phase, seen["VPC"].message) == (
        "Unknown",
        f"it belongs to another owner ({text})",
    )


async def test_an_unobservable_object_is_unknown_with_the_reason_and_hides_no_other() -> (
    None
):
    seen = await looked(
        Role=PermissionDenied("iam:GetRole"),
        AccessEntry=ABSENT,
        VPC=CloudObservation(State.READY, "vpc-1"),
    )
    assert {kind: each.phase for kind, each in seen.items()} == {
        "Role": "Unknown",
        "AccessEntry": "Absent",
        "VPC": "Ready",
        IN_CLUSTER: "Unknown",
    }
    assert (seen["Role"].message, "401" in seen[IN_CLUSTER].message) == (
        "PermissionDenied: iam:GetRole",
        True,
    )


async def test_a_rejected_credential_ends_the_observation() -> None:
    with pytest.raises(CredentialsInvalid, match="expired"):
        await looked(Role=CredentialsInvalid("expired"))


async def test_a_duplicated_object_is_shown_as_differing_and_the_duplicate_deleted() -> (
    None
):
    seen = await looked(
        VPC=CloudObservation(State.READY, "vpc-1", duplicates=("vpc-2",))
    )
    assert (seen["VPC"].phase, seen["VPC"].message) == (
        "Differs",
        "it exists more than once: vpc-2",
    )


async def test_a_deleted_object_that_cannot_be_recreated_is_shown_as_broken() -> None:
    seen = await looked(
        VPC=CloudObservation(
            State.ABSENT, reason="VPC vpc-1 is gone", cause=ReplaceRequired
        )
    )
    assert (seen["VPC"].phase, seen["VPC"].message) == ("Broken", "VPC vpc-1 is gone")


# Work on one object


def wanted(known_id: str = "", epoch: int = 0) -> ObjectWork:
    known = {"vpc": {"id": known_id}} if known_id else {}
    return ObjectWork(
        owner_named("acme", "prod", "u"), an_object("VPC"), known, "token", epoch
    )


async def ensured(
    handler: Scenes, work: ObjectWork, pace: PollPace = PACE
) -> CloudObservation:
    return await ensure(handler, work, pace, lambda _: None)


async def test_a_known_object_that_was_deleted_is_left_to_the_next_epoch() -> None:
    """The cloud returns the old response for the old token: the deleted gateway."""
    gone = Scenes([ABSENT])
    assert (await ensured(gone, wanted("nat-1"))).state is State.ABSENT
    assert gone.done == []


async def test_an_object_that_disappears_during_the_wait_is_not_recreated_by_the_same_attempt() -> (
    None
):
    """This may be a worker without a connection to Temporal.

    Its cluster is deleted meanwhile.
    """
    going = Scenes([CloudObservation(State.PENDING, "nat-1"), ABSENT])
    assert (await ensured(going, wanted())).state is State.ABSENT
    assert going.done == []


async def test_an_object_that_disappears_before_it_is_seen_is_left_to_the_next_epoch() -> (
    None
):
    """The cloud returns the old response for the token, as if the object were created."""
    gone = Scenes([ABSENT])
    assert (await ensured(gone, wanted())).state is State.ABSENT
    assert gone.done == ["create 0"] * 3


async def test_a_wait_before_the_creation_does_not_count_as_the_object() -> None:
    busy = Scenes(
        [
            CloudObservation(State.PENDING, reason="operation op-1 runs"),
            ABSENT,
            CloudObservation(State.READY, "gpu"),
        ]
    )
    assert (await ensured(busy, wanted())).state is State.READY
    assert busy.done == ["create 0"]


async def test_an_object_that_is_listed_late_counts_as_existing() -> None:
    late = Scenes(
        [
            CloudObservation(State.PENDING, "nat-1"),
            CloudObservation(State.ABSENT, uncertain=True),
            CloudObservation(State.READY, "nat-1"),
        ]
    )
    assert (await ensured(late, wanted(), PATIENT)).state is State.READY
    assert late.done == []


async def test_an_object_that_is_listed_late_is_deleted() -> None:
    scenes = Scenes(
        [
            CloudObservation(State.ABSENT, uncertain=True),
            CloudObservation(State.ABSENT, uncertain=True),
            CloudObservation(State.READY, "x"),
            ABSENT,
        ]
    )
    work = replace(activities(("GKE", Provider({"Address": scenes}))), pace=PATIENT)
    order = CloudObjectOrder(
        account=ACCOUNT, object=to_wire(an_object("Address"), "Quick"), again=True
    )
    gone = await asked_by(OWN).run(work.delete_cloud_object, order)
    assert (gone.phase, scenes.done) == ("Absent", ["delete x"])


async def test_an_object_that_cannot_be_recreated_is_not_created() -> None:
    gone = Scenes(
        [
            CloudObservation(
                State.ABSENT,
                reason="vpc-1 is gone, and cluster cannot move",
                cause=ReplaceRequired,
            )
        ]
    )
    with pytest.raises(ReplaceRequired, match="cluster cannot move"):
        await ensured(gone, wanted("vpc-1"))
    assert gone.done == []


async def test_a_change_without_effect_is_tried_three_times_and_then_reported() -> None:
    same = Scenes(
        [
            CloudObservation(
                State.DIFFERS, "gpu", changes=("counts",), reason="status ACTIVE"
            )
        ]
    )
    with pytest.raises(
        CloudObjectBroken,
        match=r"was changed 3 times, and still differs in counts \(status ACTIVE\)",
    ):
        await ensured(same, wanted())
    assert same.done == ["update counts"] * 3


async def test_successive_changes_are_all_applied() -> None:
    steps = Scenes(
        [
            *(
                CloudObservation(
                    State.DIFFERS, "cluster", changes=("version",), reason=f"1.{minor}"
                )
                for minor in range(6)
            ),
            CloudObservation(State.READY),
        ]
    )
    assert (await ensured(steps, wanted())).state is State.READY
    assert len(steps.done) == 6


TOLD = [
    ("4.2, 4.3 what an object needs is not found for two minutes", NotYet, 121, True),
    ("4.2, 4.3 it may have been created just now", NotYet, 119, False),
    ("4.1 trouble lasts for half an hour", ServerError, 1801, True),
    ("4.1 trouble may pass", ServerError, 1799, False),
]


@pytest.mark.parametrize(
    ("error", "seconds", "told"),
    [row[1:] for row in TOLD],
    ids=[row[0] for row in TOLD],
)
async def test_the_workflow_gets_lasting_errors(
    error: type[TransientError], seconds: int, told: bool
) -> None:
    provider = Provider(
        {"Subnets": Scenes([error("InvalidVpcID.NotFound: vpc-1 does not exist")])}
    )
    began = ActivityEnvironment.default_info().scheduled_time.timestamp()
    work = replace(activities(("GKE", provider)), clock=lambda: began + seconds)
    order = CloudObjectOrder(
        account=ACCOUNT, object=to_wire(an_object("Subnets"), "Quick")
    )
    with pytest.raises(ApplicationError, match="vpc-1 does not exist") as failed:
        await asked_by(OWN).run(work.ensure_cloud_object, order)
    assert (failed.value.type, failed.value.non_retryable) == (error.__name__, told)


# Threads


async def test_the_identity_of_a_credential_is_read_in_a_thread() -> None:
    """AWS is called at the first use of a credential, by any activity."""
    provider = Provider(
        {"VPC": Scenes([ABSENT]), "Role": Scenes([CloudObservation(State.READY, "r")])}
    )
    work, run = activities(("GKE", provider)), asked_by(OWN).run
    await run(
        work.ensure_cloud_object,
        CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("Role"), "Quick")),
    )
    await run(
        work.delete_cloud_object,
        CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("VPC"), "Quick")),
    )
    await run(
        work.observe_cloud,
        ObserveCloud(account=ACCOUNT, objects=[to_wire(an_object("Role"), "Quick")]),
    )
    assert [thread is threading.main_thread() for thread in provider.asked_in] == [
        False
    ] * 3


async def test_a_cloud_that_does_not_respond_blocks_no_other_account() -> None:
    answers = threading.Event()

    def hangs() -> CloudObservation:
        answers.wait(30)
        return CloudObservation(State.READY, "vpc-1")

    work = activities(
        ("GKE", Provider({"VPC": Scenes([hangs])})),
        ("EKS", Provider({"VPC": Scenes([CloudObservation(State.READY, "vpc-2")])})),
    )
    # Other tests leave threads with this name.
    before = set(threading.enumerate())
    order = CloudObjectOrder(account=ACCOUNT, object=to_wire(an_object("VPC"), "Quick"))
    held = [
        asyncio.create_task(asked_by(OWN).run(work.ensure_cloud_object, order))
        for _ in range(10 * CALLS_AT_ONCE)
    ]
    try:
        other = order.model_copy(
            update={
                "account": ACCOUNT.model_copy(
                    update={"provider": "EKS", "secret": "eks-default"}
                )
            }
        )
        found = await asyncio.wait_for(
            asked_by(OWN).run(work.ensure_cloud_object, other), 10
        )
        assert found.phase == "Ready"
        assert await asyncio.wait_for(asyncio.to_thread(lambda: GOOD), 10) == GOOD
        begun = set(threading.enumerate()) - before
        assert (
            sum(thread.name.startswith("GKE-gke-default") for thread in begun)
            == CALLS_AT_ONCE
        )
    finally:
        answers.set()
    assert {each.phase for each in await asyncio.gather(*held)} == {"Ready"}


# Leftovers


def a_leftover(name: str, evidence: str = "a tag", *, ours: bool = True) -> Leftover:
    return Leftover(kind="Disk", id=name, evidence=evidence, ours=ours)


async def audited(provider: Provider) -> CloudAudit:
    found: CloudAudit = await asked_by(OWN).run(
        activities(("GKE", provider)).audit_cloud,
        AuditCloud(account=ACCOUNT, sweep=True),
    )
    return found


@pytest.mark.parametrize(
    "error",
    [Dependency, InvalidInput, PermissionDenied, ServerError],
    ids=lambda each: each.__name__,
)
async def test_a_leftover_that_cannot_be_deleted_does_not_block_other_deletions(
    error: Any,
) -> None:
    provider = Provider(
        {},
        [a_leftover("a"), a_leftover("b"), a_leftover("c")],
        {"b": error("it is protected")},
    )
    found = await audited(provider)
    assert [each.id for each in found.swept] == ["a", "c"]
    assert [(each.id, each.evidence) for each in found.leftovers] == [
        ("b", f"{error.__name__}: it is protected; a tag")
    ]


async def test_what_controllers_made_is_deleted_after_the_control_plane() -> None:
    disk = a_leftover("disk")
    pool = a_leftover("pool").model_copy(update={"key": "pool/old"})
    cluster = a_leftover("cluster").model_copy(update={"key": CLUSTER_KEY})
    provider = Provider({}, [disk, pool, cluster], {"cluster": Dependency("a pool")})
    found = await audited(provider)
    assert [each.id for each in found.swept] == ["pool"]
    assert [each.id for each in found.leftovers] == ["disk", "cluster"]
    found = await audited(Provider({}, [disk], {}))
    assert [each.id for each in found.swept] == ["disk"]


@pytest.mark.parametrize(
    "error", [CredentialsInvalid, Throttled], ids=lambda each: each.__name__
)
async def test_a_rejected_credential_or_throttling_ends_the_sweep(
    error: Any,
) -> None:
    provider = Provider({}, [a_leftover("a"), a_leftover("b")], {"a": error("no")})
    with pytest.raises((CredentialsInvalid, ApplicationError), match="no"):
        await audited(provider)
    assert [each.id for each in provider.left] == ["a", "b"]


async def test_dependencies_of_unknown_pools_stay_until_these_are_gone() -> None:
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
    assert ([each.id for each in found.swept], found.leftovers) == (
        ["a", "nat-1", "node"],
        [],
    )


async def test_the_list_of_leftovers_is_bounded() -> None:
    """Temporal terminates a workflow whose state is too large, and then nothing manages
    its objects.
    """
    planted = [
        a_leftover(
            f"projects/p/firewalls/{number}", "kubernetes.io/" + "x" * 2000, ours=False
        )
        for number in range(2 * LEFTOVERS_MAX)
    ]
    provider = Provider(
        {}, [*planted, a_leftover("ours")], {"ours": Dependency("it is used")}
    )
    found = await audited(provider)
    assert (len(found.leftovers), found.more, found.leftovers[0].id) == (
        LEFTOVERS_MAX,
        LEFTOVERS_MAX + 1,
        "ours",
    )
    assert len(found.model_dump_json()) < 256 * 1024
