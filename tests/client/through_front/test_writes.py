"""Writing through the front: nothing is written over, what was answered counts as applied, fronts that are behind are waited for."""

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
from client.errors import AlreadyExists, CommandFailed, Conflict, Forbidden, NoAnswer, NotFound, Refused
from client.follow import edit, requests
from client.follow.apply import apply_manifests
from client.follow.edit import change
from client.follow.requests import until_applied
from client.refs.targets import Target
from client.refs.tree import Tree
from client.through_front import objects as through_front
from client.through_front.access import FrontAccess
from client.through_front.objects import FrontObjects, front_objects
from tests.client.through_front.answering import Said, a_status, always, answering, not_there
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
    """The objects as the user ann has them."""
    async with front_objects(FrontAccess(str(fleet.client.make_url("")).rstrip("/"), TOKENS["ann"])) as objects:
        yield objects


class Meanwhile:
    """Objects of which another user sets the count after they are read, so many times."""

    def __init__(self, objects: FrontObjects, fleet: Fleet, times: int) -> None:
        self._objects, self._fleet, self._times = objects, fleet, times
        self.counts = 2

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        if self._times:
            self._times -= 1
            self.counts += 1
            path = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/mine/scale"
            body = json.dumps({"spec": {"replicas": self.counts}}).encode()
            assert (await self._fleet.ask("PATCH", path, body=body, **{"Content-Type": "application/merge-patch+json"}))[0] == 200
        await self._objects.change_spec(target, message, read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


async def test_a_change_is_made_again_of_what_another_user_made_of_the_object_meanwhile(fleet: Fleet, ann: FrontObjects) -> None:
    busy: Any = Meanwhile(ann, fleet, 2)
    done = await change(busy, MINE, lambda tree: with_pause(tree, paused=True))
    spec = fleet.plane.trees[("ModelDeployment", "a", "mine")]["spec"]
    assert (done.seen, spec["rollout"]["paused"], spec["replicas"]) == (True, True, 4)


@pytest.mark.parametrize("reason", ["", "new racks & cables, at 6"])
async def test_the_reason_of_a_change_reaches_the_object(fleet: Fleet, ann: FrontObjects, reason: str) -> None:
    await change(ann, MINE, lambda tree: with_pause(tree, paused=True), reason=reason)
    assert fleet.plane.reasons == [reason] * bool(reason)
    assert fleet.plane.trees["ModelDeployment", "a", "mine"]["spec"]["rollout"]["paused"] is True


@pytest.mark.parametrize(
    "rows",
    [None, {}, [3], [{"template": {}}], [{"generation": "1", "template": {}}], [{"generation": True, "template": {}}], [{"generation": 1}]],
)
async def test_what_is_no_list_of_earlier_templates_is_refused(rows: Any) -> None:
    async with answering(always(Said(200, {"revisions": rows}))) as front, front_objects(FrontAccess(front.url)) as objects:
        with pytest.raises(CommandFailed, match="did not answer with the earlier templates of ModelDeployment ml/qwen"):
            await objects.revisions(QWEN)
        assert front.asked == [("GET", "/v1/namespaces/ml/modeldeployments/qwen/revisions")]


async def test_an_object_that_is_changed_all_the_time_is_a_conflict_and_keeps_what_others_wrote(fleet: Fleet, ann: FrontObjects) -> None:
    busy: Any = Meanwhile(ann, fleet, 99)
    with pytest.raises(Conflict):
        await change(busy, MINE, lambda tree: with_pause(tree, paused=True))
    spec = fleet.plane.trees[("ModelDeployment", "a", "mine")]["spec"]
    assert ("rollout" in spec, spec["replicas"]) == (False, 5)


async def test_only_requests_that_were_answered_are_applied_and_those_that_changed_something_are_told_apart(ann: FrontObjects) -> None:
    manifest = {**a_deployment("mine", "a", replicas=2), "metadata": {"name": "mine", "namespace": "a", "labels": {"tier": "gold"}}}
    await ann.set_spec(MINE, SetSpec(request_id="first", manifest=manifest))
    await ann.set_spec(MINE, SetSpec(request_id="same", manifest=manifest))
    manifest = {**manifest, "spec": {**manifest["spec"], "replicas": 7}}
    await ann.set_spec(MINE, SetSpec(request_id="other", manifest=manifest))
    with pytest.raises(Refused):
        await ann.set_spec(MINE, SetSpec(request_id="bad", manifest={**manifest, "spec": {"replicas": -1}}))
    await ann.check_spec(MINE, SetSpec(request_id="dry", manifest={**manifest, "spec": {**manifest["spec"], "replicas": 9}}))
    tree = await ann.describe(MINE)
    assert (tree["appliedRequestIds"], tree["changingRequestIds"], tree["spec"]["replicas"]) == (
        ["first", "same", "other"],
        ["first", "other"],
        7,
    )


async def test_a_count_and_a_deletion_are_applied_when_the_front_has_answered(fleet: Fleet, ann: FrontObjects) -> None:
    scaled = await request_scale(ann, MINE, 5)
    assert scaled.tree
    assert scaled.tree["spec"]["replicas"] == 5
    deleted = await request_deletion(ann, MINE, DeleteOptions())
    assert deleted
    assert (await until_applied(ann, MINE, deleted.request_id)).seen
    assert fleet.plane.trees[("ModelDeployment", "a", "mine")]["metadata"]["deletionTimestamp"]
    with pytest.raises(NotFound):
        await ann.delete(Target.of(BY_KIND["ModelDeployment"], "a", "none"), Delete(request_id="r"))


FORBIDDEN = Said(403, a_status(403, "Forbidden"))


async def test_who_may_only_set_the_count_has_set_it_when_the_front_has_answered() -> None:
    """Nor does one need to read what one may only delete."""
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": deployment()["metadata"], "spec": {"replicas": 5}}
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
        assert [method for method, _ in front.asked] == ["PATCH", "GET", "DELETE", "GET"]
    async with answering(always(FORBIDDEN)) as front, front_objects(FrontAccess(front.url)) as objects:
        with pytest.raises(Forbidden):
            await request_scale(objects, QWEN, 5)


async def test_an_object_that_may_not_be_read_any_more_after_it_was_applied_is_applied(capsys: pytest.CaptureFixture[str]) -> None:
    written = False

    def answer(request: Any, _number: int) -> Said:
        nonlocal written
        said = FORBIDDEN if written else Said(200, deployment())
        written = written or request.method == "PUT"
        return said

    async with answering(answer) as front, front_objects(FrontAccess(front.url)) as objects:
        (applied,) = await apply_manifests(objects, [load(a_deployment("qwen", "ml", replicas=2))])
    assert (applied.seen, applied.outcome, capsys.readouterr().out) == (True, "applied", "modeldeployment/qwen applied\n")


@pytest.mark.parametrize("message", [Delete(request_id="r", evict=True), Delete(request_id="r", purge_crds=True)])
async def test_a_deletion_with_more_than_the_front_can_say_is_not_sent(fleet: Fleet, ann: FrontObjects, message: Delete) -> None:
    with pytest.raises(Refused, match="needs Temporal"):
        await ann.delete(MINE, message)
    assert fleet.plane.touched == []


async def test_an_object_that_another_user_creates_or_deletes_meanwhile_is_written_all_the_same() -> None:
    tree = deployment()
    script = iter([
        ("GET", not_there()), ("POST", Said(409, a_status(409, "AlreadyExists"))),
        ("GET", Said(200, tree)), ("PUT", not_there()),
    ])  # fmt: skip

    def answer(request: Any, _number: int) -> Said:
        method, said = next(script)
        assert request.method == method
        return said

    async with answering(answer) as front, front_objects(FrontAccess(front.url)) as objects:
        with pytest.raises(NotFound):
            await objects.set_spec(QWEN, SetSpec(request_id="r", manifest=a_deployment("qwen", "ml")))
        assert [method for method, _ in front.asked] == ["GET", "POST", "GET", "PUT"]
    assert issubclass(AlreadyExists, Conflict)


@pytest.mark.slow
async def test_a_command_about_many_objects_does_not_use_up_what_the_front_answers_at_once() -> None:
    async with answering(always(Said(200, deployment(), seconds=0.05))) as front, front_objects(FrontAccess(front.url)) as objects:
        found = await asyncio.gather(*(objects.exists(QWEN) for _ in range(80)))
    assert (all(found), len(front.asked), front.most_at_once) == (True, 80, 16)


@pytest.mark.parametrize("behind", ["older", "none"])
async def test_a_front_that_does_not_know_of_the_change_yet_is_asked_again(behind: str) -> None:
    """Behind one address there may be several: the one that is asked next is not the one that carried the change out."""
    before, after = deployment(), deployment()
    after["spec"]["replicas"], after["metadata"]["resourceVersion"] = 5, "1800000000000000"
    late = Said(200, before) if behind == "older" else not_there()
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": deepcopy(after["metadata"]), "spec": {"replicas": 5}}

    def answer(request: Any, number: int) -> Said:
        return Said(200, scale) if request.method == "PATCH" else late if number < 5 else Said(200, after)

    async with answering(answer) as front, front_objects(FrontAccess(front.url)) as objects:
        done = await request_scale(objects, QWEN, 5)
    assert done.tree
    assert (done.tree["spec"]["replicas"], len(front.asked)) == (5, 5)


@pytest.mark.parametrize("written", [False, True])
async def test_a_deleted_object_is_gone_when_a_front_without_it_must_have_known_it(*, written: bool) -> None:
    def answer(request: Any, _number: int) -> Said:
        return not_there() if request.method == "GET" else Said(200, deployment())

    async with answering(answer) as front, front_objects(FrontAccess(front.url)) as objects:
        if written:
            await objects.scale(QWEN, Scale(request_id="r", replicas=2))
        await objects.delete(QWEN, Delete(request_id="d"))
        with pytest.raises(NoAnswer if written else NotFound):
            await objects.describe(QWEN)


async def test_a_front_that_never_learns_of_a_change_is_trusted_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Any, _number: int) -> Said:
        return Said(200, deployment() if request.method == "PATCH" else None) if request.method == "PATCH" else not_there()

    async with answering(answer) as front, front_objects(FrontAccess(front.url)) as objects:
        await objects.scale(QWEN, Scale(request_id="r", replicas=2))
        with pytest.raises(NoAnswer):
            await objects.describe(QWEN)
        monkeypatch.setattr(through_front, "_LEARNS_SECONDS", 0.0)
        with pytest.raises(NotFound):
            await objects.describe(QWEN)
