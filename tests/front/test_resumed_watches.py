"""Clients that list in pages, watch and resume at any front end with the actual state.

Two fronts see the events with gaps, each in its own order and up to a second late, and
restart. No server is needed: the test puts the events into their projections as
`front/store/feed.py` does.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from api_types.clock import timestamp
from api_types.resources.kinds import BY_KIND
from front.serving.reads.reading import Form, listed
from front.serving.reads.watching import Watch
from front.serving.requests import RequestedResource
from front.store import projection
from front.store.projection import (
    LATE_MICROSECONDS,
    OTHER_FRONT_MICROSECONDS,
    ObjectKey,
    Projection,
    Tree,
    WatchQueue,
)
from tests.random_cases import SEED, cases

RESOURCE = RequestedResource(BY_KIND["ModelDeployment"], "a")
START = 1_000 * LATE_MICROSECONDS
NAMES = [f"n{number}" for number in range(4)]
TIERS = ("gold", "silver", "")
SELECTORS: Mapping[str, Callable[[str], bool]] = {
    "": lambda _: True,
    "tier=gold": lambda tier: tier == "gold",
    "tier!=gold": lambda tier: tier != "gold",
}
STEPS = 40


def key_of(name: str) -> ObjectKey:
    return ObjectKey(RESOURCE.info.kind, "a", name)


def a_tree(
    name: str, version: int, *, uid: str, tier: str = "", created: int = 0
) -> Tree:
    metadata = {
        "name": name,
        "namespace": "a",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"tier": tier} if tier else {},
    }
    metadata["creationTimestamp"] = timestamp(
        datetime.fromtimestamp((created or version) / 1e6, UTC)
    )
    return {
        "apiVersion": RESOURCE.info.api_version,
        "kind": RESOURCE.info.kind,
        "metadata": metadata,
    }


def named_only(name: str, end: int, created: str) -> Tree:
    """Return an object that was gone before it was seen."""
    metadata = {
        "name": name,
        "namespace": "a",
        "resourceVersion": str(end),
        "creationTimestamp": created,
    }
    return {
        "apiVersion": RESOURCE.info.api_version,
        "kind": RESOURCE.info.kind,
        "metadata": metadata,
    }


@dataclass
class World:
    """The actual state.

    `changed` and `relabelled` have the last change of each name and of its labels.
    `gone` has the last tree of each deleted name, with the time of its end.
    """

    draw: random.Random
    now: int = START
    trees: dict[str, Tree] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    relabelled: dict[str, int] = field(default_factory=dict)
    gone: dict[str, tuple[Tree, int]] = field(default_factory=dict)

    def change(self) -> None:
        """Create, change or delete an object."""
        self.now += self.draw.randrange(1, OTHER_FRONT_MICROSECONDS // 3)
        late = self.now - OTHER_FRONT_MICROSECONDS
        name = self.draw.choice(NAMES)
        if name not in self.trees and self.changed.get(name, 0) > late:
            # A name is not reused before every front has seen that it is free.
            return
        before = self.trees.pop(name, None)
        self.changed[name] = self.now
        if before and self.draw.random() < 0.4:
            self.gone[name] = (before, self.now)
            return
        self.trees[name] = a_tree(
            name, self.now, uid=f"u{self.now}", tier=self.draw.choice(TIERS)
        )
        # A front does not notice labels that change back between two polls.
        kept = ["uid", "creationTimestamp"] + ["labels"] * (
            self.relabelled.get(name, 0) > late
        )
        if before:
            self.trees[name]["metadata"] |= {
                field: before["metadata"][field] for field in kept
            }
        if not before or "labels" not in kept:
            self.relabelled[name] = self.now

    def selected(self, selector: str) -> dict[str, str]:
        """Return the versions of selected objects."""
        tiers = {
            name: tree["metadata"]["labels"].get("tier", "")
            for name, tree in self.trees.items()
        }
        return {
            name: self.trees[name]["metadata"]["resourceVersion"]
            for name, tier in tiers.items()
            if SELECTORS[selector](tier)
        }


class Seeing:
    """A front with its view of the state. `at` has the last poll of each name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.start()

    def start(self) -> None:
        """Restart the front: it reads all existing and deleted objects."""
        self.projection, self.at = Projection(), dict[str, int]()
        self.see(NAMES)
        self.projection.complete = True

    def see(self, names: list[str]) -> None:
        """Read the state of objects, as the feed does."""
        for name in names:
            key, known = key_of(name), self.projection.get(key_of(name))
            self.at[name] = self.world.now
            if tree := self.world.trees.get(name):
                self.projection.put(key, tree)
            elif name in self.world.gone:
                before, closed = self.world.gone[name]
                if known:
                    self.projection.remove(key, closed)
                else:
                    self.projection.bury(
                        key,
                        named_only(
                            name, closed, before["metadata"]["creationTimestamp"]
                        ),
                        closed,
                    )

    def see_some(self) -> None:
        """Read some objects, and all that were not read for half of the allowed delay."""
        late = self.world.now - OTHER_FRONT_MICROSECONDS // 2
        old = [name for name in NAMES if self.at[name] < late]
        self.see([*self.world.draw.sample(NAMES, self.world.draw.randrange(3)), *old])


@dataclass
class Client:
    """A client library's state: versions by name."""

    selector: str
    held: dict[str, str] = field(default_factory=dict)
    version: str = ""
    watch: Watch | None = None
    watcher: WatchQueue | None = None
    at: Projection | None = None

    async def list_part(self, front: Seeing, token: str, limit: int) -> str:
        """Read one page of a list; return its continue token."""
        query = {"labelSelector": self.selector, "limit": str(limit), "continue": token}
        found = await listed(front.projection, RESOURCE, query)
        if not token:
            self.held, self.version = {}, found.metadata["resourceVersion"]
        names = [stored.tree["metadata"]["name"] for stored in found.held]
        assert not self.held.keys() & set(names), "an object is in two parts"
        self.held |= {
            name: str(stored.version)
            for name, stored in zip(names, found.held, strict=True)
        }
        return str(found.metadata.get("continue", ""))

    def begin(self, front: Seeing) -> None:
        self.end()
        self.at, self.watcher = (
            front.projection,
            front.projection.watch(RESOURCE.info.kind),
        )
        self.watch = Watch(
            front.projection,
            RESOURCE,
            {"labelSelector": self.selector, "resourceVersion": self.version},
            Form(),
        )
        self._take(self.watch._first())

    async def follow(self) -> None:
        """Apply the events of the watch."""
        assert self.watch
        assert self.watcher
        self._take(self.watch._in_parts(await self.watcher.take(0)))

    def end(self) -> None:
        if self.at and self.watcher:
            self.at.unwatch(self.watcher)
        self.watch = self.watcher = self.at = None

    def _take(self, parts: Iterator[bytes]) -> None:
        for line in b"".join(parts).splitlines():
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            if event["type"] == "DELETED":
                self.held.pop(metadata["name"], None)
            else:
                self.held[metadata["name"]] = metadata["resourceVersion"]
            self.version = str(max(int(self.version), int(metadata["resourceVersion"])))


@pytest.mark.random
@pytest.mark.parametrize("number", range(cases(300)))
async def test_every_client_ends_with_the_actual_state(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(f"{SEED} {number}")  # noqa: S311 - repeatable on purpose
    world = World(draw)
    monkeypatch.setattr(
        projection, "utc_now", lambda: datetime.fromtimestamp(world.now / 1e6, UTC)
    )
    for _ in range(draw.randrange(10)):
        world.change()
    fronts = [Seeing(world), Seeing(world)]
    client = Client(draw.choice([*SELECTORS]))
    limit = draw.choice((0, 1, 2))
    token = await client.list_part(draw.choice(fronts), "", limit)
    while token:
        for _ in range(draw.randrange(8)):
            world.change()
            for front in fronts:
                front.see_some()
        token = await client.list_part(draw.choice(fronts), token, limit)
    begun = 0
    for _ in range(draw.randrange(STEPS)):
        match draw.randrange(8):
            # A client that moves to another front and back within a second may get an
            # older state from the one that is behind.
            case 0 if begun < world.now - OTHER_FRONT_MICROSECONDS:
                begun = world.now
                client.begin(draw.choice(fronts))
            case 1:
                client.end()
            case 2 if draw.random() < 0.3:
                front = draw.choice(fronts)
                if client.at is front.projection:
                    client.end()
                front.start()
            case _:
                world.change()
                for front in fronts:
                    front.see_some()
        if client.watch:
            await client.follow()
    if not client.watch:
        for front in fronts:
            front.see(NAMES)
        client.begin(draw.choice(fronts))
    for front in fronts:
        front.see(NAMES)
    await client.follow()
    assert client.held == world.selected(client.selector)


def seen_by(front: Projection, *trees: Tree) -> Projection:
    front.complete = True
    for tree in trees:
        front.put(key_of(tree["metadata"]["name"]), tree)
    return front


def told_by(watch: Watch, watcher: WatchQueue) -> list[tuple[str, str]]:
    """Return the current events of a watch, with object names."""
    changes, watcher.changed = (
        sorted(watcher.changed.items(), key=lambda item: item[1].version),
        {},
    )
    events = [
        json.loads(line) for line in b"".join(watch._in_parts(changes)).splitlines()
    ]
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


async def test_objects_created_after_the_first_page_are_on_no_later_page() -> None:
    front = seen_by(
        Projection(),
        *(
            a_tree(name, START + number, uid=name)
            for number, name in enumerate(("n0", "n2"))
        ),
    )
    first = await listed(front, RESOURCE, {"limit": "1"})
    seen_by(
        front, a_tree("n1", START + 10, uid="n1"), a_tree("n2", START + 11, uid="n2")
    )
    rest = await listed(
        front, RESOURCE, {"limit": "5", "continue": first.metadata["continue"]}
    )
    assert [
        stored.tree["metadata"]["name"] for stored in (*first.held, *rest.held)
    ] == ["n0", "n2"]


@pytest.mark.parametrize(
    ("created", "version", "tier", "told"),
    [
        pytest.param(
            START - 1,
            START + 1,
            "silver",
            True,
            id="relabelled when another front had told of it",
        ),
        pytest.param(
            START - 2,
            START - 1,
            "silver",
            True,
            id="relabelled before the version, which that one did not know",
        ),
        pytest.param(
            START + OTHER_FRONT_MICROSECONDS,
            START + OTHER_FRONT_MICROSECONDS,
            "silver",
            False,
            id="created since",
        ),
        pytest.param(
            START - 1,
            START + OTHER_FRONT_MICROSECONDS + 1,
            "silver",
            False,
            id="this front would have seen it",
        ),
    ],
)
async def test_an_object_known_only_from_another_front_leaves_a_selection(
    created: int, version: int, tier: str, told: bool
) -> None:
    front = seen_by(Projection())
    watch, watcher = (
        Watch(
            front,
            RESOURCE,
            {"labelSelector": "tier=gold", "resourceVersion": str(START)},
            Form(),
        ),
        front.watch("ModelDeployment"),
    )
    assert b"".join(watch._first()) == b""
    seen_by(front, a_tree("n1", version, uid="n1", tier=tier, created=created))
    assert told_by(watch, watcher) == ([("DELETED", "n1")] if told else [])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param("gold", "gold", ["MODIFIED"], id="changed"),
        pytest.param("silver", "gold", ["ADDED"], id="selected since"),
        pytest.param("", "gold", ["ADDED"], id="created since"),
        pytest.param("gold", "silver", ["DELETED"], id="selected no more"),
        pytest.param("silver", "silver", [], id="never selected"),
    ],
)
async def test_a_resumed_watch_reports_changes_of_known_objects(
    before: str, after: str, told: list[str]
) -> None:
    front, created, changed = (
        Projection(),
        START - 2 * OTHER_FRONT_MICROSECONDS,
        START + 2 * OTHER_FRONT_MICROSECONDS,
    )
    if before:
        seen_by(front, a_tree("n1", created, uid="n1", tier=before))
    seen_by(
        front,
        a_tree(
            "n1", changed, uid="n1", tier=after, created=created if before else changed
        ),
    )
    watch = Watch(
        front,
        RESOURCE,
        {"labelSelector": "tier=gold", "resourceVersion": str(START)},
        Form(),
    )
    assert [
        json.loads(line)["type"] for line in b"".join(watch._first()).splitlines()
    ] == told


async def test_a_resumed_watch_reports_nothing_about_unselected_objects() -> None:
    front = seen_by(Projection(), a_tree("n1", START - 1, uid="n1", tier="silver"))
    watch = Watch(
        front,
        RESOURCE,
        {"labelSelector": "tier=gold", "resourceVersion": str(START)},
        Form(),
    )
    watcher = front.watch("ModelDeployment")
    assert b"".join(watch._first()) == b""
    seen_by(
        front,
        a_tree(
            "n1",
            START + 2 * OTHER_FRONT_MICROSECONDS,
            uid="n1",
            tier="silver",
            created=START - 1,
        ),
    )
    assert told_by(watch, watcher) == []


async def test_only_clients_that_know_a_replaced_object_get_its_deletion() -> None:
    front = seen_by(Projection(), a_tree("n1", START - 1, uid="old", tier="gold"))
    # One poll saw both the end and the new object.
    seen_by(
        front,
        a_tree("n1", START + 2 * OTHER_FRONT_MICROSECONDS, uid="new", tier="silver"),
    )
    watch = Watch(
        front,
        RESOURCE,
        {"labelSelector": "tier=gold", "resourceVersion": str(START)},
        Form(),
    )
    assert [
        json.loads(line)["type"] for line in b"".join(watch._first()).splitlines()
    ] == ["DELETED"]


async def test_a_permanent_object_is_listed_though_a_restarted_front_continues_the_pages() -> (
    None
):
    first = await listed(
        seen_by(Projection(), *(a_tree(name, START, uid=name) for name in NAMES)),
        RESOURCE,
        {"limit": "1"},
    )
    front = Projection()
    for name in NAMES:
        front.put(
            key_of(name),
            a_tree(
                name, START + 1_000 * OTHER_FRONT_MICROSECONDS, uid=name, created=START
            ),
        )
    front.complete = True
    rest = await listed(
        front, RESOURCE, {"limit": "5", "continue": first.metadata["continue"]}
    )
    assert [
        stored.tree["metadata"]["name"] for stored in (*first.held, *rest.held)
    ] == NAMES


@pytest.mark.parametrize("is_known_from_the_start", [False, True])
async def test_an_object_known_only_from_another_front_is_reported_as_deleted(
    *, is_known_from_the_start: bool
) -> None:
    front = Projection()
    if is_known_from_the_start:
        front.bury(
            key_of("n1"),
            named_only(
                "n1", START, timestamp(datetime.fromtimestamp(START / 1e6, UTC))
            ),
            START,
        )
    seen_by(front)
    # The second object of this name is a different one.
    for end in (
        START + 90 * OTHER_FRONT_MICROSECONDS,
        START + 95 * OTHER_FRONT_MICROSECONDS,
    ):
        watches = [
            (Watch(front, RESOURCE, query, Form()), front.watch("ModelDeployment"))
            for query in ({"resourceVersion": str(START)}, {})
        ]
        assert [b"".join(watch._first()) for watch, _ in watches][1] == b""
        for _ in range(2):
            front.bury(
                key_of("n1"),
                named_only(
                    "n1", end, timestamp(datetime.fromtimestamp(START / 1e6, UTC))
                ),
                end,
            )
        # A client without objects at the start receives no deletions.
        assert [told_by(*each) for each in watches] == [[("DELETED", "n1")], []]
        # Each poll of the next seconds finds it.
        front.bury(
            key_of("n1"),
            named_only("n1", end, timestamp(datetime.fromtimestamp(START / 1e6, UTC))),
            end,
        )
        assert [told_by(*each) for each in watches] == [[], []]


async def test_a_watch_remembers_only_selected_objects() -> None:
    front = seen_by(Projection(), a_tree("n1", START, uid="n1"))
    front.put(
        key_of("n1")._replace(namespace="b"), a_tree("n1", START, uid="of another")
    )
    watch = Watch(front, RESOURCE, {"resourceVersion": str(START)}, Form())
    assert b"".join(watch._first()) == b""
    assert watch._known.keys() == {key_of("n1")}


async def test_a_version_is_sent_once() -> None:
    front = seen_by(Projection(), a_tree("n1", START, uid="n1"))
    watch, watcher = (
        Watch(front, RESOURCE, {"resourceVersion": str(START)}, Form()),
        front.watch("ModelDeployment"),
    )
    assert b"".join(watch._first()) == b""
    # Responses with rows that are computed per request may differ.
    seen_by(front, {**a_tree("n1", START, uid="n1"), "status": {"age": "1s"}})
    assert told_by(watch, watcher) == []
