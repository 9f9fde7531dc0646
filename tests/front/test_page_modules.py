"""Single modules of the page, run in a browser."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from front.store.projection import Projection, Tree
from tests.front.browser import Browser, Tab
from tests.front.shown_fleet import (
    a_replica,
    condition,
)
from tests.front.shown_page import served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest_asyncio.fixture
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    projection = Projection()
    projection.complete = True
    # A file of the page instead of the page itself, which would follow collections
    # during the test.
    async with served(projection) as url, browser.tab(f"{url}ui/icon.svg") as tab:
        yield tab


def deleting(replica: Tree) -> Tree:
    replica["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return replica


@pytest.mark.parametrize(
    ("pool", "closed", "replicas", "expected"),
    [
        ({}, "", [], {"free": 4}),
        ({}, "", [a_replica("r", "d", "eu")], {"used": 1, "free": 3}),
        # Two engines with one GPU each do not share a node.
        (
            {},
            "",
            [a_replica("r", "d", "eu", gpus=1), a_replica("s", "d", "eu", gpus=1)],
            {"used": 2, "free": 2},
        ),
        ({}, "", [a_replica("r", "d", "eu", workers=2)], {"used": 3, "free": 1}),
        (
            {},
            "",
            [a_replica("r", "d", "eu", phase="Starting")],
            {"held": 1, "free": 3},
        ),
        ({}, "", [deleting(a_replica("r", "d", "eu"))], {"held": 1, "free": 3}),
        ({}, "draining", [a_replica("r", "d", "eu")], {"used": 1, "draining": 3}),
        ({}, "silent", [], {"silent": 4}),
        ({"classMissing": True}, "", [], {"wasted": 4}),
        ({"unusable": "no driver"}, "", [], {"wasted": 4}),
        ({"nodes": -1}, "", [], {}),
        ({"nodes": 0}, "", [a_replica("r", "d", "eu")], {"used": 1}),
    ],
)
async def test_a_pool_is_charged_in_nodes(
    tab: Tab, pool: Tree, closed: str, replicas: list[Tree], expected: dict[str, int]
) -> None:
    given = {"name": "gpus", "nodes": 4} | pool
    found = await tab.ask_module(
        "capacity.js", "m.chargeOf(...a)", given, closed, replicas
    )
    assert {sort: count for sort, count in found.items() if count} == expected


async def test_a_cell_is_a_node_and_in_large_pools_several(tab: Tab) -> None:
    expression = (
        "[m.nodesPerCell(a[0]), (m.cells(a[0], 'Pool').getAttribute('aria-label')), "
        "[...m.cells(a[0], 'Pool').children].map((e) => "
        "[e.getAttribute('class'), e.getAttribute('d').split('M').length - 1])]"
    )
    none = {"used": 0, "held": 0, "wasted": 0, "draining": 0, "silent": 0, "free": 0}
    assert await tab.ask_module("drawings.js", expression, none | {"free": 3}) == [
        1,
        "Pool: 0 used, 0 held, 3 free nodes",
        [["node free", 3]],
    ]
    large = none | {"used": 1, "free": 10**6}
    per, label, ((used, one), (free, rest)) = await tab.ask_module(
        "drawings.js", expression, large
    )
    assert (used, one, free) == ("node used", 1, "node free")
    assert rest <= 34 * 3
    assert label == f"Pool: 1 used, 0 held, 1000000 free nodes; a cell is {per} nodes"


@pytest.mark.parametrize(
    ("conditions", "closed"),
    [
        ([condition()], ""),
        (
            [condition(), condition("True", "Drained", kind="SchedulingDisabled")],
            "draining",
        ),
        ([condition("False", "Unreachable")], "silent"),
        ([condition("Unknown", "WaitingForWorker", kind="ClusterReady")], "silent"),
        ([condition("False", "Installing")], "wasted"),
    ],
)
async def test_drained_and_silent_clusters_have_no_free_nodes(
    tab: Tab, conditions: list[Tree], closed: str
) -> None:
    tree = {"metadata": {"name": "eu"}, "status": {"conditions": conditions}}
    assert await tab.ask_module("fleet.js", "m.closedBy(...a)", tree) == closed


async def test_a_region_is_a_label_or_the_region_at_the_cloud(tab: Tab) -> None:
    label = {"modelplane.ai/region": "north"}
    gke = {"source": "GKE", "gke": {"region": "europe-west4"}}
    aks = {"source": "AKS", "aks": {"location": "westeurope"}}
    trees = [
        {"metadata": {"name": "a", "labels": label}, "spec": {"cluster": gke}},
        {"metadata": {"name": "a"}, "spec": {"cluster": gke}},
        {"metadata": {"name": "a"}, "spec": {"cluster": aks}},
        {"metadata": {"name": "a"}, "spec": {"cluster": {"source": "Existing"}}},
    ]
    found = await tab.ask_module("fleet.js", "a.map(m.regionOf)", *trees)
    assert found == ["north", "europe-west4", "westeurope", "no region"]


NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


async def test_ages_have_the_largest_unit_that_fits(tab: Tab) -> None:
    seconds = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 10**7, -5]
    times = [NOW - 1000 * each for each in seconds]
    expression = f"a.map((each) => m.age(each, {NOW}))"
    assert await tab.ask_module("ages.js", expression, *times, "", "soon") == [
        "0 s",
        "59 s",
        "1 min",
        "59 min",
        "1 h",
        "23 h",
        "1 d",
        "115 d",
        "0 s",
        "",
        "",
    ]


async def test_yaml_reads_back_as_the_object(tab: Tab) -> None:
    tree = {
        "a": {"b": [1, "two", {"c": None, "d": []}, ["x", "y"]], "e": {}},
        "words": [
            "yes",
            "No",
            "null",
            "~",
            "1",
            "1.0",
            "a: b",
            "- x",
            "#",
            "",
            " ",
            "é",
        ],
        "f:T": 'say "hi"\n',
        "time": "2026-01-01T00:00:00Z",
        "on": True,
    }
    text = await tab.ask_module("yaml.js", "m.yaml(a[0])", tree)
    assert yaml.safe_load(text) == tree


async def test_a_view_survives_its_address(tab: Tab) -> None:
    opened = {"kind": "ModelCache", "namespace": "team a", "name": "x/y?"}
    view = {"opened": opened, "search": "eu ready&", "unready": True}
    expression = "m.viewOf(m.fragmentOf(a[0]))"
    assert await tab.ask_module("location.js", expression, view) == view
    nothing = {"opened": None, "search": "", "unready": False}
    assert [
        await tab.ask_module("location.js", "m.viewOf(a[0])", text)
        for text in ("", "#", "#/ModelCache", "#/%")
    ] == [nothing] * 4


async def test_a_search_finds_objects_by_all_their_words(tab: Tab) -> None:
    replica = a_replica("chat-eu-0", "chat", "eu")
    expression = "m.matcher(a[0])('ModelReplica', a[1])"
    found = {
        text: await tab.ask_module(
            "search.js", expression, {"search": text, "unready": False}, replica
        )
        for text in ("", "EU chat", "modelreplica", "deployment=chat", "eu us")
    }
    assert found == {
        "": True,
        "EU chat": True,
        "modelreplica": True,
        "deployment=chat": True,
        "eu us": False,
    }
    only = {"search": "", "unready": True}
    assert not await tab.ask_module("search.js", expression, only, replica)


@pytest.mark.parametrize(
    ("phase", "ready", "expected"),
    [
        ("Ready", condition(), ("ready", "Ready", "")),
        (
            "Starting",
            condition("False", "Starting", "loads"),
            ("waiting", "Starting", "Starting: loads"),
        ),
        (
            "Ready",
            condition("False", "Degraded", ""),
            ("waiting", "Not ready", "Degraded"),
        ),
        (
            "Failed",
            condition("False", "Invalid", "no"),
            ("failed", "Failed", "Invalid: no"),
        ),
        (
            "Terminating",
            condition("False", "Deleting", "waits"),
            ("deleting", "Being deleted", "Deleting: waits"),
        ),
        (None, None, ("waiting", "Not ready", "")),
    ],
)
async def test_a_state_has_a_word_and_a_reason(
    tab: Tab, phase: str | None, ready: Any, expected: tuple[str, str, str]
) -> None:
    metadata = {"name": "x"} | (
        {"deletionTimestamp": "2026-01-01T00:00:00Z"} if phase == "Terminating" else {}
    )
    tree = {
        "metadata": metadata,
        "status": {"phase": phase, "conditions": [ready] if ready else []},
    }
    assert await tab.ask_module("states.js", "m.stateOf(...a)", tree) == dict(
        zip(("sort", "word", "why"), expected, strict=True)
    )


async def test_conditions_with_problems_are_shown(
    tab: Tab,
) -> None:
    conditions = [
        condition(kind="Placed"),
        condition("Unknown", "Asking", kind="Routed"),
        condition("False", kind="Deleting"),
        condition("True", "Drain", "by ann", kind="SchedulingDisabled"),
    ]
    tree = {"metadata": {"name": "x"}, "status": {"conditions": conditions}}
    assert await tab.ask_module("states.js", "m.notes(...a)", tree) == [
        {"type": "Routed", "text": "Asking"},
        {"type": "SchedulingDisabled", "text": "Drain: by ann"},
    ]


async def test_the_connection_is_described_in_one_line(tab: Tab) -> None:
    live, connecting, paused = (
        {"sort": sort} for sort in ("live", "connecting", "paused")
    )
    lost = {"sort": "lost", "since": 2, "why": "the server cannot be reached"}
    unknown, forbidden = (
        {"sort": "refused", "code": code, "why": "no"} for code in (401, 403)
    )
    expression = (
        "a.map((each) => m.connectionLine(each, (at) => `at ${at}`).text.split('.')[0])"
    )
    cases = [
        [live],
        [live, connecting],
        [lost, lost | {"since": 1}, unknown],
        [unknown, live],
        [forbidden],
        [forbidden, live],
        [paused, live],
    ]
    assert await tab.ask_module("connection.js", expression, *cases) == [
        "Connected: changes appear as they happen",
        "Connecting",
        "Not connected since at 1: the server cannot be reached",
        "The server rejected this token (401)",
        "Connected, but this token has no right to read here (403)",
        "Connected",
        "Paused while this tab is hidden",
    ]


async def test_reconnects_back_off_with_jitter(tab: Tab) -> None:
    waits = await tab.ask_module(
        "connection.js",
        "[1, 2, 3, 10, 1000].map((n) => [m.waitAfter(n, 0), m.waitAfter(n, 1)])",
    )
    assert waits == [
        [250, 500],
        [500, 1000],
        [1000, 2000],
        [7500, 15000],
        [7500, 15000],
    ]


async def test_an_announcement_has_few_sentences(tab: Tab) -> None:
    expression = "m.announcement(new Map(a[0]), new Map(a[1]))"
    before, after = (
        [["a", "Ready"], ["b", "Ready"], ["c", "x"], ["d", "x"]],
        [["a", "Ready"], ["b", "Failed"], ["e", "Ready"]],
    )
    assert (
        await tab.ask_module("changes.js", expression, before, after)
        == "b: Failed. e is new: Ready. c is gone. 1 more changes."
    )
    assert await tab.ask_module("changes.js", expression, before, before) == ""


async def test_lines_are_split_at_any_chunk_boundary(tab: Tab) -> None:
    expression = "((lines) => a.flatMap((part) => lines.add(part)))(new m.Lines())"
    assert await tab.ask_module(
        "watch_events.js", expression, '{"a"', ':1}\n{"b":2}\n\n{"c', '":3}', "\n", "{"
    ) == [
        '{"a":1}',
        '{"b":2}',
        '{"c":3}',
    ]


# Follow a collection over a sequence of answers; return the requests and callbacks.
FOLLOWED = """(async () => {
  const asked = [], told = [], seen = [];
  const stop = new AbortController();
  const wait = globalThis.setTimeout;
  const real = globalThis.fetch;
  // Pauses take no time; the time limits of requests stay.
  globalThis.setTimeout = (f, ms) => wait(f, [20000, 90000].includes(ms) ? ms : 0);
  globalThis.fetch = async (path, options) => {
    asked.push([path.replace(/^.*[?]/, '?'), options.headers.Authorization ?? '']);
    const next = a[0].shift();
    if (next === undefined) { stop.abort(); throw new TypeError('no more answers'); }
    if (next === 'broken') throw new TypeError('connection refused');
    const [status, ...lines] = next;
    return new Response(lines.map((line) => JSON.stringify(line)).join('\\n') + '\\n', { status });
  };
  try {
    const changed = (known) => seen.push(known && [...known.objects.keys()]);
    const order = { path: '/x', token: a[1], known: null, changed,
      told: (each) => told.push(each.code ?? each.sort) };
    await m.follow(order, stop.signal);
  } finally { globalThis.fetch = real; globalThis.setTimeout = wait; }
  return { asked, told, seen };
})()
"""


def listed(version: int, *names: str) -> list[Any]:
    return [
        200,
        {
            "metadata": {"resourceVersion": str(version)},
            "items": [{"metadata": {"name": name, "namespace": "t"}} for name in names],
        },
    ]


def event(kind: str, version: int, name: str = "") -> Any:
    return {
        "type": kind,
        "object": {
            "metadata": {
                "name": name,
                "namespace": "t",
                "resourceVersion": str(version),
            }
        },
    }


def watch_from(version: int) -> str:
    return f"?watch=1&allowWatchBookmarks=true&resourceVersion={version}"


async def follow(tab: Tab, *answers: Any, user: str = "") -> Any:
    return await tab.ask_module("follow.js", FOLLOWED, list(answers), user)


async def test_a_watch_resumes_from_the_last_version_after_its_end_and_an_error(
    tab: Tab,
) -> None:
    answers = (
        listed(5, "a"),
        [200, event("ADDED", 7, "b")],
        "broken",
        [503, {"message": "later"}],
        [200, event("DELETED", 9, "a")],
    )
    found = await follow(tab, *answers, [200, event("BOOKMARK", 12)], user="ann")
    versions = [watch_from(number) for number in (5, 7, 7, 7, 9, 12)]
    assert found["asked"] == [
        ["/x", "Bearer ann"],
        *([query, "Bearer ann"] for query in versions),
    ]
    assert found["told"] == ["live", "lost", "lost", "live", "live"]
    assert found["seen"] == [["t/a"], ["t/a", "t/b"], ["t/b"], ["t/b"]]


async def test_after_410_everything_is_listed_again(tab: Tab) -> None:
    expired = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    found = await follow(
        tab,
        listed(5, "a"),
        [200, expired],
        listed(9, "b"),
        [410, {"message": "too old"}],
        listed(11, "c"),
    )
    assert [path for path, _ in found["asked"]] == [
        "/x",
        watch_from(5),
        "/x",
        watch_from(9),
        "/x",
        watch_from(11),
    ]
    assert found["seen"] == [["t/a"], ["t/b"], ["t/c"]]


async def test_an_error_of_a_watch_is_a_lost_connection(tab: Tab) -> None:
    failed = {"type": "ERROR", "object": {"code": 500, "message": "oops"}}
    found = await follow(
        tab, listed(5, "a"), [200, failed], [200, event("MODIFIED", 6, "a")]
    )
    assert [path for path, _ in found["asked"]] == [
        "/x",
        watch_from(5),
        watch_from(5),
        watch_from(6),
    ]
    assert found["told"] == ["live", "lost", "live"]


async def test_objects_disappear_when_the_right_to_read_is_lost(tab: Tab) -> None:
    answers = [
        listed(5, "a"),
        [200, event("ADDED", 7, "b")],
        [403, {"message": "no"}],
        [401, {"message": "who"}],
        listed(8, "c"),
    ]
    found = await follow(tab, *answers)
    assert found["told"] == ["live", 403, 401]
    assert found["seen"] == [["t/a"], ["t/a", "t/b"], None, None, ["t/c"]]
