"""Writes through the front: no concurrent change is lost, an answered write counts as
applied, and commands wait for fronts that are behind.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from api_types.messages.entities import Delete, Scale, SetSpec
from api_types.resources.kinds import BY_KIND
from api_types.validation.manifests import load
from client.commands.change.delete import DeleteOptions, request_deletion
from client.commands.change.rollout import with_pause
from client.commands.change.scale import request_scale
from client.follow import edit
from client.follow.apply import apply_manifests
from client.follow.edit import change
from fleet_client import requests
from fleet_client.errors import (
    AlreadyExists,
    CommandFailed,
    Forbidden,
    NoAnswer,
    NotFound,
    Refused,
    WriteConflict,
)
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.requests import until_applied
from fleet_client.through_front import objects as through_front
from fleet_client.through_front.access import FrontAccess
from fleet_client.through_front.objects import FrontObjects, front_objects
from tests.client.through_front.answering import (
    Said,
    a_status,
    always,
    answering,
    not_there,
)
from tests.client.through_front.test_answers import deployment
from tests.front.fleet_of_tenants import TOKENS, Fleet, a_fleet
from tests.workflows.environment.harness import a_deployment

MINE = Target.of(BY_KIND["ModelDeployment"], "a", "mine")
QWEN = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(requests, "_POLL_SECONDS_MAX", 0.001)
    monkeypatch.setattr(edit, "_PAUSES", (0.0, 0.0))


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front with the objects of two tenants."""
    async with a_fleet(tmp_path) as fleet:
        yield fleet


@pytest_asyncio.fixture
async def ann(fleet: Fleet) -> AsyncIterator[FrontObjects]:
    """The objects as the user ann sees them."""
    async with front_objects(
        FrontAccess(str(fleet.client.make_url("")).rstrip("/"), TOKENS["ann"])
    ) as objects:
        yield objects


class Meanwhile:
    """Objects whose count another user sets after a read, so many times."""

    def __init__(self, objects: FrontObjects, fleet: Fleet, times: int) -> None:
        self._objects, self._fleet, self._times = objects, fleet, times
        self.counts = 2

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        if self._times:
            self._times -= 1
            self.counts += 1
            path = (
                "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/mine/scale"
            )
            body = json.dumps({"spec": {"replicas": self.counts}}).encode()
            assert (
                await self._fleet.ask(
                    "PATCH",
                    path,
                    body=body,
                    **{"Content-Type": "application/merge-patch+json"},
                )
            )[0] == 200
        await self._objects.change_spec(target, message, read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


async def test_a_conflicting_change_is_repeated_on_the_new_object(
    fleet: Fleet, ann: FrontObjects
) -> None:
    busy: Any = Meanwhile(ann, fleet, 2)
    done = await change(busy, MINE, lambda tree: with_pause(tree, paused=True))
    spec = fleet.plane.trees[("ModelDeployment", "a", "mine")]["spec"]
    assert (done.seen, spec["rollout"]["paused"], spec["replicas"]) == (True, True, 4)


@pytest.mark.parametrize("reason", ["", "new racks & cables, at 6"])
async def test_the_reason_of_a_change_reaches_the_object(
    fleet: Fleet, ann: FrontObjects, reason: str
) -> None:
    await change(ann, MINE, lambda tree: with_pause(tree, paused=True), reason=reason)
    assert fleet.plane.reasons == [reason] * bool(reason)
    assert (
        fleet.plane.trees["ModelDeployment", "a", "mine"]["spec"]["rollout"]["paused"]
        is True
    )


@pytest.mark.parametrize(
    "rows",
    [
        None,
        {},
        [3],
        [{"template": {}}],
        [{"generation": "1", "template": {}}],
        [{"generation": True, "template": {}}],
        [{"generation": 1}],
    ],
)
async def test_an_invalid_list_of_revisions_is_rejected(rows: Any) -> None:
    async with (
        answering(always(Said(200, {"revisions": rows}))) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        with pytest.raises(
            CommandFailed,
            match="answer about the earlier templates of ModelDeployment ml/qwen is not valid",
        ):
            await objects.revisions(QWEN)
        assert front.asked == [
            ("GET", "/v1/namespaces/ml/modeldeployments/qwen/revisions")
        ]


async def test_an_object_that_keeps_changing_is_a_conflict_and_keeps_other_changes(
    fleet: Fleet, ann: FrontObjects
) -> None:
    busy: Any = Meanwhile(ann, fleet, 99)
    with pytest.raises(WriteConflict):
        await change(busy, MINE, lambda tree: with_pause(tree, paused=True))
    spec = fleet.plane.trees[("ModelDeployment", "a", "mine")]["spec"]
    assert ("rollout" in spec, spec["replicas"]) == (False, 5)


async def test_only_answered_requests_are_applied_and_unchanged_objects_are_distinguished(
    ann: FrontObjects,
) -> None:
    manifest = {
        **a_deployment("mine", "a", replicas=2),
        "metadata": {"name": "mine", "namespace": "a", "labels": {"tier": "gold"}},
    }
    await ann.set_spec(MINE, SetSpec(request_id="first", manifest=manifest))
    await ann.set_spec(MINE, SetSpec(request_id="same", manifest=manifest))
    manifest = {**manifest, "spec": {**manifest["spec"], "replicas": 7}}
    await ann.set_spec(MINE, SetSpec(request_id="other", manifest=manifest))
    with pytest.raises(Refused):
        await ann.set_spec(
            MINE,
            SetSpec(request_id="bad", manifest={**manifest, "spec": {"replicas": -1}}),
        )
    await ann.check_spec(
        MINE,
        SetSpec(
            request_id="dry",
            manifest={**manifest, "spec": {**manifest["spec"], "replicas": 9}},
        ),
    )
    tree = await ann.describe(MINE)
    assert (
        tree["appliedRequestIds"],
        tree["changingRequestIds"],
        tree["spec"]["replicas"],
    ) == (
        ["first", "same", "other"],
        ["first", "other"],
        7,
    )


async def test_a_count_and_a_deletion_are_applied_when_the_front_has_answered(
    fleet: Fleet, ann: FrontObjects
) -> None:
    scaled = await request_scale(ann, MINE, 5)
    assert scaled.tree
    assert scaled.tree["spec"]["replicas"] == 5
    deleted = await request_deletion(ann, MINE, DeleteOptions())
    assert deleted
    assert (await until_applied(ann, MINE, deleted.request_id)).seen
    assert fleet.plane.trees[("ModelDeployment", "a", "mine")]["metadata"][
        "deletionTimestamp"
    ]
    with pytest.raises(NotFound):
        await ann.delete(
            Target.of(BY_KIND["ModelDeployment"], "a", "none"), Delete(request_id="r")
        )


FORBIDDEN = Said(403, a_status(403, "Forbidden"))


async def test_a_user_who_may_only_scale_has_scaled_once_the_front_answers() -> None:
    """A user may delete an object without the right to read it."""
    scale = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": deployment()["metadata"],
        "spec": {"replicas": 5},
    }
    done = {"PATCH": Said(200, scale), "DELETE": Said(200, deployment())}
    async with (
        answering(lambda request, _: done.get(request.method, FORBIDDEN)) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        scaled = await request_scale(objects, QWEN, 5)
        assert (scaled.seen, scaled.tree, scaled.gone) == (True, None, False)
        deleted = await request_deletion(objects, QWEN, DeleteOptions())
        assert deleted
        assert (await until_applied(objects, QWEN, deleted.request_id)).seen
        assert [method for method, _ in front.asked] == [
            "PATCH",
            "GET",
            "DELETE",
            "GET",
        ]
    async with (
        answering(always(FORBIDDEN)) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        with pytest.raises(Forbidden):
            await request_scale(objects, QWEN, 5)


async def test_an_object_that_may_not_be_read_any_more_after_it_was_applied_is_applied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = False

    def answer(request: Any, _number: int) -> Said:
        nonlocal written
        said = FORBIDDEN if written else Said(200, deployment())
        written = written or request.method == "PUT"
        return said

    async with (
        answering(answer) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        (applied,) = await apply_manifests(
            objects, [load(a_deployment("qwen", "ml", replicas=2))]
        )
    assert (applied.seen, applied.outcome, capsys.readouterr().out) == (
        True,
        "applied",
        "modeldeployment/qwen applied\n",
    )


@pytest.mark.parametrize(
    "message",
    [Delete(request_id="r", evict=True), Delete(request_id="r", purge_crds=True)],
)
async def test_a_deletion_with_more_than_the_front_can_say_is_not_sent(
    fleet: Fleet, ann: FrontObjects, message: Delete
) -> None:
    with pytest.raises(Refused, match="needs Temporal"):
        await ann.delete(MINE, message)
    assert fleet.plane.touched == []


async def test_a_write_succeeds_although_another_user_creates_or_deletes_the_object() -> (
    None
):
    tree = deployment()
    script = iter([
        ("GET", not_there()), ("POST", Said(409, a_status(409, "AlreadyExists"))),
        ("GET", Said(200, tree)), ("PUT", not_there()),
    ])  # fmt: skip

    def answer(request: Any, _number: int) -> Said:
        method, said = next(script)
        assert request.method == method
        return said

    async with (
        answering(answer) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        with pytest.raises(NotFound):
            await objects.set_spec(
                QWEN, SetSpec(request_id="r", manifest=a_deployment("qwen", "ml"))
            )
        assert [method for method, _ in front.asked] == ["GET", "POST", "GET", "PUT"]
    assert issubclass(AlreadyExists, WriteConflict)


@pytest.mark.slow
async def test_a_command_on_many_objects_limits_its_concurrent_requests() -> None:
    async with (
        answering(always(Said(200, deployment(), seconds=0.05))) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        found = await asyncio.gather(*(objects.exists(QWEN) for _ in range(80)))
    assert (all(found), len(front.asked), front.most_at_once) == (True, 80, 16)


@pytest.mark.parametrize("behind", ["older", "none"])
async def test_an_outdated_read_is_repeated_until_it_shows_the_change(
    behind: str,
) -> None:
    """Several fronts may share one address.

    The next read may go to a front that did not carry out the change.
    """
    before, after = deployment(), deployment()
    after["spec"]["replicas"], after["metadata"]["resourceVersion"] = (
        5,
        "1800000000000000",
    )
    late = Said(200, before) if behind == "older" else not_there()
    scale = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": deepcopy(after["metadata"]),
        "spec": {"replicas": 5},
    }

    def answer(request: Any, number: int) -> Said:
        return (
            Said(200, scale)
            if request.method == "PATCH"
            else late
            if number < 5
            else Said(200, after)
        )

    async with (
        answering(answer) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        done = await request_scale(objects, QWEN, 5)
    assert done.tree
    assert (done.tree["spec"]["replicas"], len(front.asked)) == (5, 5)


@pytest.mark.parametrize("written", [False, True])
async def test_a_deleted_object_is_gone_when_a_front_without_it_must_have_known_it(
    *, written: bool
) -> None:
    def answer(request: Any, _number: int) -> Said:
        return not_there() if request.method == "GET" else Said(200, deployment())

    async with (
        answering(answer) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        if written:
            await objects.scale(QWEN, Scale(request_id="r", replicas=2))
        await objects.delete(QWEN, Delete(request_id="d"))
        with pytest.raises(NoAnswer if written else NotFound):
            await objects.describe(QWEN)


async def test_a_front_that_never_learns_of_a_change_is_trusted_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(request: Any, _number: int) -> Said:
        return (
            Said(200, deployment() if request.method == "PATCH" else None)
            if request.method == "PATCH"
            else not_there()
        )

    async with (
        answering(answer) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        await objects.scale(QWEN, Scale(request_id="r", replicas=2))
        with pytest.raises(NoAnswer):
            await objects.describe(QWEN)
        monkeypatch.setattr(through_front, "_LEARNS_SECONDS", 0.0)
        with pytest.raises(NotFound):
            await objects.describe(QWEN)
