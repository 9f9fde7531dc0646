"""What a deletion shows: its rows, its problems with their next steps, and its blockers."""

from datetime import timedelta

from api_types.messages.clouds import (
    CLUSTER_KEY,
    CloudAudit,
    CloudDelete,
    CloudObjectResult,
    CloudObjectState,
    Leftover,
)
from tests.activities.clouds.builders import UID
from tests.simulation.lives.virtual_plane import on_a_virtual_loop
from tests.workflows.cloud_cluster.at_cloud import (
    NAME,
    AtCloud,
    a_class,
    a_cluster,
    control_plane,
    held_by,
)
from tests.workflows.cloud_cluster.decided import Decided, ready
from tests.workflows.environment.harness import Json, condition, message, reason
from workflows.cloud_cluster import deletion, shown
from workflows.cloud_cluster.calls import AUDIT
from workflows.cloud_cluster.teardown import Teardown
from workflows.entity.failures import Failure

VPC, SUBNET, ACCOUNT = "net/vpc", "net/subnet", "iam/sa"
BALANCER = Leftover(kind="LoadBalancer", id="lb-1", evidence="in the network")
DISK = Leftover(kind="Disk", id="pvc-1", evidence="of a user", blocks=False)
MARK = Failure("OwnerMarkMissing", "role r does not have the tag; restore with `tag`")
ABANDON = (
    "and run `modelplane retry ic/prod`; or leave everything that still exists with "
    "`modelplane annotate ic/prod modelplane.ai/abandon=true`, which the end of the "
    "deletion lists"
)
STEP = f"run the command in the message, or delete the object at the cloud, {ABANDON}"
ATTEMPTS_A_DAY = 101
OTHERS = f"delete them at the cloud if nothing needs them, {ABANDON}"


class Deleted(Decided):
    """A cluster that was Ready, and whose deletion has begun."""

    def __init__(self, cluster: Decided) -> None:
        self.__dict__ = cluster.__dict__
        self.state.deletion = CloudDelete(uid=UID, sequence=9)
        self.teardown = Teardown(self.context, self.calls, self.entries, self.converge)

    async def step(self, delay: timedelta = timedelta()) -> None:
        self.context.time += delay
        self.context.requeue_time = None
        await self.teardown.update()

    async def gone(self, key: str) -> None:
        self.calls.done(key, CloudObjectResult(key=key, phase="Absent"))
        await self.step()

    def rows(self) -> dict[str, CloudObjectState]:
        found = deletion.states_of(self.state, self.calls.keys)
        return {each.key or each.name: each for each in found}

    def report(self) -> tuple[str, str]:
        report = shown.report_of(self.state, UID, self.calls.keys)
        return report.reason, report.message


async def deleted() -> Deleted:
    cluster = Deleted(ready())
    await cluster.step()
    return cluster


async def test_rows_say_what_is_deleted_and_what_waits_for_what() -> None:
    cluster = await deleted()
    title = cluster.entry(CLUSTER_KEY).title
    rows = {key: each.message for key, each in cluster.rows().items()}
    assert {key: rows[key] for key in (CLUSTER_KEY, "pool/gpu", SUBNET, VPC)} == {
        CLUSTER_KEY: "is being deleted",
        "pool/gpu": "is deleted with the control plane",
        SUBNET: f"waits until {title} is deleted",
        VPC: f"waits until {cluster.entry(SUBNET).title} is deleted",
    }
    assert {each.phase for each in cluster.rows().values()} == {"Deleting"}
    await cluster.gone(CLUSTER_KEY)
    assert (CLUSTER_KEY in cluster.rows(), "pool/gpu" in cluster.rows()) == (
        False,
        False,
    )


async def test_progress_is_no_problem() -> None:
    cluster = await deleted()
    title = cluster.entry(CLUSTER_KEY).title
    assert cluster.report() == ("Deleting", f"deleting {title}")


async def test_problems_of_before_the_deletion_are_forgotten() -> None:
    cluster = ready()
    cluster.entries.failed(VPC, Failure("CapacityUnavailable", "no machines"))
    going = Deleted(cluster)
    await going.step()
    assert (going.rows()[VPC].reason, going.rows()[VPC].next_step) == ("", "")
    assert going.entry(VPC).trouble.type == ""


async def test_an_object_without_mark_holds_the_deletion_and_names_the_next_step() -> (
    None
):
    cluster = await deleted()
    await cluster.gone(CLUSTER_KEY)
    for key in ("iam/binding", SUBNET, VPC):
        await cluster.gone(key)
    cluster.calls.failed(ACCOUNT, MARK)
    await cluster.step()
    row = cluster.rows()[ACCOUNT]
    assert (row.reason, row.message, row.next_step) == (
        MARK.type,
        MARK.message,
        STEP,
    )
    title = cluster.entry(ACCOUNT).title
    text = f"{MARK.type}: {title}: {MARK.message}; next step: {STEP}"
    assert cluster.report() == ("DeletionBlocked", text)
    assert not await cluster.teardown.update()
    await cluster.step(timedelta(minutes=2))
    assert cluster.calls.running(ACCOUNT), "it is tried again"


async def test_the_message_has_the_first_three_of_many_objects_without_mark() -> None:
    cluster = await deleted()
    await cluster.gone(CLUSTER_KEY)
    cluster.entries.failed(ACCOUNT, MARK)
    for key in (VPC, SUBNET):
        cluster.entries.failed(key, Failure(MARK.type, f"{key} has no tag"))
    cluster.state.leftovers = [
        Leftover(kind="Role", id=name, ours=True, unmarked=f"{name} has no tag")
        for name in ("r", "q")
    ]
    reason, text = cluster.report()
    account = cluster.entry(ACCOUNT).title
    first = f"{MARK.type}: Role q: q has no tag; Role r: r has no tag"
    more = "and 2 more, which `modelplane describe ic/prod` lists"
    assert (reason, text.split("; next step: ")) == (
        "DeletionBlocked",
        [
            f"{first}; {account}: {MARK.message}; {more}",
            STEP,
        ],
    )
    assert cluster.rows().keys() >= {"q", "r", ACCOUNT, VPC, SUBNET}


async def test_an_object_that_the_cloud_lists_again_is_deleted_before_its_network() -> (
    None
):
    cluster = await deleted()
    await cluster.gone(CLUSTER_KEY)
    await cluster.gone(SUBNET)
    back = Leftover(kind="Subnet", id="s", key=SUBNET, ours=True, unmarked="no tag")
    cluster.calls.failed(VPC, Failure("Dependency", "it has a subnet"))
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[back]))
    await cluster.step()
    assert cluster.calls.running(SUBNET)
    cluster.calls.failed(SUBNET, MARK)
    await cluster.step()
    assert cluster.report()[1].startswith(f"{MARK.type}: {cluster.entry(SUBNET).title}")


async def test_a_part_of_the_cluster_without_mark_goes_with_it() -> None:
    cluster = await deleted()
    cluster.teardown._failed("pool/gpu", MARK)
    assert cluster.entry("pool/gpu").gone
    assert cluster.reasons[-1] == "DeletedWithCluster"


async def test_objects_of_others_are_named_half_a_minute_after_they_block() -> None:
    cluster = await deleted()
    await cluster.gone(CLUSTER_KEY)
    for key in [each for each in cluster.calls.keys if each != SUBNET]:
        await cluster.gone(key)
    assert not cluster.calls.running(AUDIT)
    await cluster.step(timedelta(seconds=29))
    assert not cluster.calls.running(AUDIT)
    await cluster.step(timedelta(seconds=1))
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[BALANCER, DISK]))
    await cluster.step()
    told = f"owned by others and blocking the deletion: LoadBalancer lb-1; next step: {OTHERS}"
    assert cluster.report() == ("DeletionBlocked", told)
    row = cluster.rows()["lb-1"]
    assert (row.kind, row.reason, row.message, row.next_step, bool(row.since)) == (
        *("LoadBalancer", "OwnedByOthers", "in the network", OTHERS),
        True,
    )
    assert not cluster.calls.running(AUDIT), "the next search follows after a pause"
    await cluster.step(timedelta(minutes=1))
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[DISK]))
    await cluster.step()
    assert (cluster.report()[0], cluster.state.blocked_since) == ("Deleting", "")


async def test_an_audit_of_before_the_last_deletion_does_not_end_it() -> None:
    cluster = await deleted()
    await cluster.gone(CLUSTER_KEY)
    for key in [each for each in cluster.calls.keys if each != SUBNET]:
        await cluster.gone(key)
    await cluster.step(timedelta(seconds=30))
    await cluster.gone(SUBNET)
    while rest := [each for each in cluster.calls.keys if each != AUDIT]:
        await cluster.gone(rest[0])
    cluster.calls.done(AUDIT, CloudAudit())
    assert not await cluster.teardown.update()
    assert cluster.calls.running(AUDIT)


async def test_a_stopped_creation_may_end_after_its_worker_and_is_searched_for() -> (
    None
):
    cluster = Deleted(Decided())
    cluster.plan()
    assert cluster.calls.keys
    while not cluster.state.looked_up:
        await cluster.step()
    while rest := cluster.calls.keys:
        await cluster.gone(rest[0])
    await cluster.step(timedelta(minutes=4, seconds=-1))
    assert not cluster.calls.running(AUDIT)
    await cluster.step(timedelta(seconds=1))
    late = Leftover(kind="VPC", id="v", key=VPC, ours=True)
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[late]))
    await cluster.step()
    assert cluster.calls.keys == [VPC]


async def test_a_leftover_without_mark_holds_the_deletion() -> None:
    cluster = await deleted()
    while rest := [each for each in cluster.calls.keys if each != AUDIT]:
        await cluster.gone(rest[0])
    role = Leftover(kind="Role", id="r", ours=True, unmarked=MARK.message)
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[role]))
    assert not await cluster.teardown.update()
    text = f"{MARK.type}: Role r: {MARK.message}; next step: {STEP}"
    assert cluster.report()[1].startswith(text)
    assert cluster.rows()["r"].next_step == STEP


async def test_a_leftover_that_does_not_disappear_has_a_row_with_the_next_step() -> (
    None
):
    cluster = await deleted()
    while rest := [each for each in cluster.calls.keys if each != AUDIT]:
        await cluster.gone(rest[0])
    left = Leftover(
        kind="LoadBalancer", id="lb-2", ours=True, evidence="of the cluster"
    )
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[left]))
    assert not await cluster.teardown.update()
    text = f"left at the cloud: LoadBalancer lb-2; next step: {OTHERS}"
    assert cluster.report()[1] == text
    row = cluster.rows()["lb-2"]
    assert (row.reason, row.next_step) == ("LeftAtCloud", OTHERS)


async def test_an_object_left_by_mistake_is_deleted_later_and_not_listed() -> None:
    cluster = await deleted()
    foreign = CloudObjectResult(key=CLUSTER_KEY, phase="Absent", message="of another")
    cluster.calls.done(CLUSTER_KEY, foreign)
    assert cluster.teardown.stays() == [
        f"{cluster.entry(CLUSTER_KEY).title}: of another"
    ]
    await cluster.step()
    while rest := [each for each in cluster.calls.keys if each != AUDIT]:
        await cluster.gone(rest[0])
    left = Leftover(kind="Cluster", id="c", key=CLUSTER_KEY, ours=True)
    cluster.calls.done(AUDIT, CloudAudit(leftovers=[left]))
    await cluster.step()
    await cluster.gone(CLUSTER_KEY)
    assert (cluster.teardown.stays(), cluster.entry(CLUSTER_KEY).left) == ([], False)


async def test_a_failure_of_the_whole_deletion_names_the_next_step() -> None:
    cluster = await deleted()
    cluster.converge.pause(Failure("CredentialsInvalid", "the key is revoked"))
    step = f"store a valid credential, {ABANDON}"
    text = f"CredentialsInvalid: the key is revoked; next step: {step}"
    assert cluster.report() == ("DeletionBlocked", text)
    cluster.converge._resume()
    cluster.teardown._audit_failed(Failure("PermissionDenied", "ec2:DescribeVpcs"))
    assert cluster.report()[1] == (
        "PermissionDenied: cannot search for leftovers: ec2:DescribeVpcs; next step: "
        f"grant the permission that the message names, {ABANDON}"
    )


async def test_a_deletion_without_a_plan_names_the_cluster_in_the_next_step() -> None:
    cluster = Deleted(Decided())
    order = cluster.state.order
    assert order is not None
    manifest = {**order.manifest, "metadata": {"name": "prod"}}
    cluster.state.order = order.model_copy(update={"manifest": manifest})
    cluster.converge.pause(Failure("CredentialsInvalid", "no Secret"))
    assert cluster.report()[1].endswith(ABANDON)


async def test_attempts_without_mark_become_rare_while_nobody_restores_it() -> None:
    cluster = await deleted()
    attempts = 0
    for _ in range(24 * 60):
        if cluster.calls.running(CLUSTER_KEY):
            attempts += 1
            cluster.calls.failed(CLUSTER_KEY, MARK)
        await cluster.step(timedelta(minutes=1))
    assert attempts == ATTEMPTS_A_DAY


# On the InferenceCluster


def rows_of(seen: Json) -> dict[str, Json]:
    return {each["object"]: each for each in seen["status"].get("cloudObjects", [])}


@on_a_virtual_loop
async def test_a_cluster_shows_the_missing_mark_and_its_deletion_goes_on_with_it() -> (
    None
):
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        await plane.ready("InferenceCluster", NAME)
        at_cloud.cloud.stripped.add(ACCOUNT)
        await plane.delete("InferenceCluster", NAME)
        seen = await plane.until("InferenceCluster", NAME, held_by("DeletionBlocked"))
        assert "restore with `tag`" in message(seen, "Deleting")
        assert STEP in message(seen, "Deleting")
        assert rows_of(seen)[ACCOUNT]["nextStep"] == STEP
        assert (condition(seen, "ClusterReady"), reason(seen, "ClusterReady")) == (
            "False",
            "Deleting",
        )
        assert ACCOUNT in at_cloud.cloud.things
        at_cloud.cloud.stripped.clear()
        await plane.gone("InferenceCluster", NAME)
        closed = await plane.handle("InferenceCluster", NAME).query("describe")
        assert (at_cloud.cloud.things, closed["status"].get("leftBehind")) == ({}, None)
