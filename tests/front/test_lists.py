"""Lists of a large fleet: they hold up nobody, and are what there was when they were asked for."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from api_types.resources.kinds import BY_KIND
from client.refs.selectors import TERMS_MAX
from front.serving import errors, reading, sending
from front.serving.reading import Form, listed
from front.serving.requests import Resource
from front.serving.selectors import Selection
from front.serving.watching import Watch
from front.store import projection as projection_module
from front.store.projection import Key, Projection
from tests.front.fleet_of_tenants import START, an_object

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
MANY = 50
FORMS = {"whole": Form(), "table": Form(table=True), "metadata": Form(metadata=True)}
RESOURCE = Resource(BY_KIND["ModelDeployment"], "a")


def put(projection: Projection, name: str, version: int) -> None:
    projection.put(Key("ModelDeployment", "a", name), an_object(BY_KIND["ModelDeployment"], "a", name, version))


@pytest.fixture
def projection() -> Projection:
    made = Projection()
    made.complete = True
    for number in range(MANY):
        put(made, f"n{number:03}", START + number)
    return made


@asynccontextmanager
async def others() -> AsyncIterator[list[int]]:
    """Do something else as often as there is a turn for it; gives how often, in a list of one."""
    turns = [0]

    async def take_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(take_turns())
    yield turns
    task.cancel()


async def test_others_are_answered_while_a_list_is_made(projection: Projection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "TURN_SECONDS", 0.0)
    async with others() as turns:
        found = await listed(projection, RESOURCE, {"labelSelector": "tier=gold"})
        selected, turns[0] = turns[0], 0
        parts = await found.parts(Form())
        made = turns[0]
    assert (selected >= MANY, made >= MANY) == (True, True)
    tree = json.loads(b"".join(parts))
    assert len(tree["items"]) == MANY
    assert tree["metadata"] == {"resourceVersion": str(START + MANY - 1)}


@pytest.mark.slow
@pytest.mark.parametrize("form", [FORMS["table"], Form(table=True, included="Object"), FORMS["metadata"]])
async def test_rows_and_metadata_are_made_as_their_client_reads_them(
    projection: Projection, monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    """Each answer has its own: kept until they are read, those of a few slow clients would fill the memory."""
    made: list[bytes] = []
    written: list[bytes] = []
    at: list[tuple[int, int]] = []
    encoded = reading.encoded

    def noted(tree: Any) -> bytes:
        made.append(encoded(tree))
        return made[-1]

    async def read_at_once(_: web.StreamResponse, part: bytes) -> None:
        written.append(part)
        at.append((len(made), turns[0]))

    monkeypatch.setattr(reading, "encoded", noted)
    monkeypatch.setattr(web.StreamResponse, "write", read_at_once)
    monkeypatch.setattr(sending, "PART_BYTES", 512)
    parts = await (await listed(projection, RESOURCE, {})).parts(form)
    assert made == []
    async with others() as turns:
        answer = await sending.sent(make_mocked_request("GET", PATH), sending.InParts(parts, "application/json"))
    assert answer.content_length is None
    counts = [count for count, _ in at]
    assert counts[0] < MANY / 2
    assert max(after - before for before, after in pairwise(counts)) < MANY / 2
    assert len({turn for _, turn in at}) == len(at)
    tree = json.loads(b"".join(written))
    assert len(tree["rows" if form.table else "items"]) == MANY
    assert tree["metadata"] == {"resourceVersion": str(START + MANY - 1)}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_list_of_nothing_is_one(form: Form) -> None:
    tree = json.loads(b"".join(await (await listed(Projection(), RESOURCE, {})).parts(form)))
    assert tree["rows" if form.table else "items"] == []


async def test_a_list_is_what_there_was_although_others_write_while_it_is_made(
    projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TURN_SECONDS", 0.0)
    listing = asyncio.create_task(listed(projection, RESOURCE, {}))
    await asyncio.sleep(0)
    put(projection, "n049", START + 1_000)
    put(projection, "new", START + 1_001)
    projection.remove(Key("ModelDeployment", "a", "n048"), START + 1_002)
    found = await listing
    assert [stored.version for stored in found.held] == [START + number for number in range(MANY)]
    assert found.metadata["resourceVersion"] == str(START + MANY - 1)


@pytest.mark.parametrize(
    ("query", "left"), [({}, MANY - 1), ({"labelSelector": "tier=gold"}, None), ({"fieldSelector": "metadata.name!=x"}, None)]
)
async def test_how_many_are_left_is_told_where_nothing_is_selected_as_kubernetes_does(
    projection: Projection, query: dict[str, str], left: int | None
) -> None:
    metadata = (await listed(projection, RESOURCE, {"limit": "1", **query})).metadata
    assert (bool(metadata["continue"]), metadata.get("remainingItemCount")) == (True, left)


async def test_what_many_lists_have_is_encoded_once(projection: Projection, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Counting:
        @staticmethod
        def dumps(tree: Any, **more: Any) -> str:
            made.append(tree["metadata"]["name"])
            return json.dumps(tree, **more)

    monkeypatch.setattr(projection_module, "json", Counting)
    for _ in range(3):
        await (await listed(projection, RESOURCE, {})).parts(Form())
    assert len(made) == MANY


async def test_others_are_answered_while_a_client_reads_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    at: list[int] = []

    async def read_at_once(*_: Any) -> None:
        at.append(turns[0])

    monkeypatch.setattr(web.StreamResponse, "write", read_at_once)
    async with others() as turns:
        await sending.sent(make_mocked_request("GET", PATH), sending.InParts([b"x" * 1000] * 1000, "text/plain"))
    assert len(at) > 10
    assert len(set(at)) == len(at)


@pytest.mark.slow
async def test_others_are_answered_while_a_watch_looks_for_what_it_has_to_tell(
    projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TURN_SECONDS", 0.0)
    looks = Watch._events
    for query in ({}, {"resourceVersion": str(START)}):
        at: list[int] = []

        def noted(self: Watch, *what: Any, at: list[int] = at) -> list[bytes]:
            at.append(turns[0])
            return looks(self, *what)

        with monkeypatch.context() as patched:
            patched.setattr(Watch, "_events", noted)
            async with others() as turns:
                watch = Watch(projection, RESOURCE, {"labelSelector": "tier=none", "timeoutSeconds": "1", **query}, Form())
                assert [line async for line in watch.lines(always)] == []
        assert len(at) >= MANY - 1
        assert len(set(at)) == len(at)


async def always() -> bool:
    return True


def test_a_selector_has_so_many_terms_at_most() -> None:
    fits = {"labels": ",".join(["tier"] * TERMS_MAX), "fields": ",".join(["metadata.name!=x"] * TERMS_MAX)}
    Selection("a", "", **fits)
    for kind, text in fits.items():
        with pytest.raises(errors.Refused, match=f"more than {TERMS_MAX} terms"):
            Selection("a", "", **{**fits, kind: f"{text},{text[: text.index(',')]}"})
