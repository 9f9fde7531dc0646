"""Lists of a large fleet do not block other requests, and show the state at their
request.
"""

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
from fleet_client.refs.selectors import TERMS_MAX
from front.serving import errors, sending
from front.serving.reads import reading
from front.serving.reads.reading import Form, listed
from front.serving.reads.selectors import ObjectSelector
from front.serving.reads.watching import Watch
from front.serving.requests import RequestedResource
from front.store import projection as projection_module
from front.store.projection import ObjectKey, Projection
from tests.front.fleet_of_tenants import START, an_object

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
MANY = 50
FORMS = {"whole": Form(), "table": Form(table=True), "metadata": Form(metadata=True)}
RESOURCE = RequestedResource(BY_KIND["ModelDeployment"], "a")


def put(projection: Projection, name: str, version: int) -> None:
    projection.put(
        ObjectKey("ModelDeployment", "a", name),
        an_object(BY_KIND["ModelDeployment"], "a", name, version),
    )


@pytest.fixture
def projection() -> Projection:
    made = Projection()
    made.complete = True
    for number in range(MANY):
        put(made, f"n{number:03}", START + number)
    return made


@asynccontextmanager
async def others() -> AsyncIterator[list[int]]:
    """Count the turns of the event loop, in a list of one number."""
    turns = [0]

    async def take_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(take_turns())
    yield turns
    task.cancel()


async def test_other_requests_are_answered_during_a_list(
    projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TURN_SECONDS", 0.0)
    async with others() as turns:
        found = await listed(projection, RESOURCE, {"labelSelector": "tier=gold"})
        selected, turns[0] = turns[0], 0
        parts = await found.parts(Form())
        made = turns[0]
    assert (selected >= MANY, made >= MANY) == (True, True)
    tree = json.loads(b"".join(parts))
    assert len(tree["items"]) == MANY
    assert tree["metadata"]["resourceVersion"] == str(START + MANY - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [FORMS["table"], Form(table=True, included="Object"), FORMS["metadata"]]
)
async def test_rows_and_metadata_are_produced_as_their_client_reads(
    projection: Projection, monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    """Each response has its own parts: keeping them for slow clients would fill the
    memory.
    """
    made: list[bytes] = []
    written: list[bytes] = []
    at: list[tuple[int, int]] = []
    encoded = sending.encoded

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
        answer = await sending.sent(
            make_mocked_request("GET", PATH), sending.InParts(parts, "application/json")
        )
    assert answer.content_length is None
    counts = [count for count, _ in at]
    assert counts[0] < MANY / 2
    assert max(after - before for before, after in pairwise(counts)) < MANY / 2
    assert len({turn for _, turn in at}) == len(at)
    tree = json.loads(b"".join(written))
    assert len(tree["rows" if form.table else "items"]) == MANY
    assert tree["metadata"]["resourceVersion"] == str(START + MANY - 1)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_an_empty_list_is_a_list(form: Form) -> None:
    tree = json.loads(
        b"".join(await (await listed(Projection(), RESOURCE, {})).parts(form))
    )
    assert tree["rows" if form.table else "items"] == []


async def test_a_list_shows_the_state_at_its_request_despite_writes(
    projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TURN_SECONDS", 0.0)
    listing = asyncio.create_task(listed(projection, RESOURCE, {}))
    await asyncio.sleep(0)
    put(projection, "n049", START + 1_000)
    put(projection, "new", START + 1_001)
    projection.remove(ObjectKey("ModelDeployment", "a", "n048"), START + 1_002)
    found = await listing
    assert [stored.version for stored in found.held] == [
        START + number for number in range(MANY)
    ]
    assert found.metadata["resourceVersion"] == str(START + MANY - 1)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ({}, MANY - 1),
        ({"labelSelector": "tier=gold"}, None),
        ({"fieldSelector": "metadata.name!=x"}, None),
    ],
)
async def test_the_remaining_count_is_given_only_without_selectors(
    projection: Projection, query: dict[str, str], left: int | None
) -> None:
    metadata = (await listed(projection, RESOURCE, {"limit": "1", **query})).metadata
    assert (bool(metadata["continue"]), metadata.get("remainingItemCount")) == (
        True,
        left,
    )


async def test_objects_are_encoded_once_for_all_lists(
    projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_other_requests_are_answered_while_a_client_reads_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at: list[int] = []

    async def read_at_once(*_: Any) -> None:
        at.append(turns[0])

    monkeypatch.setattr(web.StreamResponse, "write", read_at_once)
    async with others() as turns:
        await sending.sent(
            make_mocked_request("GET", PATH),
            sending.InParts([b"x" * 1000] * 1000, "text/plain"),
        )
    assert len(at) > 10
    assert len(set(at)) == len(at)


@pytest.mark.slow
async def test_other_requests_are_answered_while_a_watch_collects_changes(
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
                watch = Watch(
                    projection,
                    RESOURCE,
                    {"labelSelector": "tier=none", "timeoutSeconds": "1", **query},
                    Form(),
                )
                assert [line async for line in watch.lines(always)] == []
        assert len(at) >= MANY - 1
        assert len(set(at)) == len(at)


async def always() -> bool:
    return True


def test_the_terms_of_a_selector_are_limited() -> None:
    fits = {
        "labels": ",".join(["tier"] * TERMS_MAX),
        "fields": ",".join(["metadata.name!=x"] * TERMS_MAX),
    }
    ObjectSelector("a", "", fits["labels"], fits["fields"])
    for kind, text in fits.items():
        longer = {**fits, kind: f"{text},{text[: text.index(',')]}"}
        with pytest.raises(
            errors.RejectedRequest, match=f"more than {TERMS_MAX} terms"
        ):
            ObjectSelector("a", "", longer["labels"], longer["fields"])
