"""Single modules of the page, run in a browser."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from front.store.projection import Projection
from tests.front.browser import Browser, Tab
from tests.front.shown_fleet import a_cluster, a_replica, condition
from tests.front.test_page_in_browser import served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest_asyncio.fixture
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    projection = Projection()
    projection.complete = True
    # A file of the page instead of the page itself, which would follow collections
    # during the test.
    async with served(projection) as url, browser.tab(f"{url}ui/icon.svg") as tab:
        yield tab


@pytest.mark.parametrize(
    ("size", "pods", "nodes", "without"),
    [
        ((3, 8), [[8], [8, 8]], [[(0, 8)], [(1, 8)], [(1, 8)]], 0),
        ((3, 8), [[1], [1]], [[(0, 1)], [(1, 1)], []], 0),
        ((1, 8), [[4], [2, 2]], [[(0, 4), (1, 2), (1, 2)]], 0),
        ((2, 8), [[8], [8], [8]], [[(0, 8)], [(1, 8)]], 1),
        ((2, 8), [[3], [3], [6]], [[(0, 3)], [(1, 3)]], 1),
        ((1, 8), [[9]], [[]], 1),
        ((0, 8), [[1]], [], 1),
        ((1, 0), [[0]], [[(0, 0)]], 0),
        ((1, 0), [[1]], [[]], 1),
    ],
)
async def test_pods_are_drawn_on_the_emptiest_node(
    tab: Tab, size: tuple[int, int], pods: Any, nodes: Any, without: int
) -> None:
    given = {"nodes": size[0], "gpusPerNode": size[1]}
    found = await tab.ask_module("capacity.js", "m.packed(...a)", given, pods)
    assert [
        [(pod["who"], pod["gpus"]) for pod in node] for node in found["nodes"]
    ] == nodes
    assert found["without"] == without


async def test_only_gpus_are_counted_if_a_pool_has_some(tab: Tab) -> None:
    gpu = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 8,
    }
    nic = {"name": "nic", "driver": "dra.net", "deviceClassName": "rdma", "count": 4}
    assumed = {
        "name": "gpu-memory",
        "driver": "gpu.nvidia.com",
        "claim": "Synthetic",
        "count": 2,
    }
    sizes = [
        await tab.ask_module(
            "capacity.js",
            "m.sizeOf(...a)",
            {"name": "p", "nodes": nodes, "devices": devices},
        )
        for nodes, devices in (
            (2, [gpu, nic, assumed]),
            (2, [nic]),
            (-1, []),
            (None, [gpu | {"count": -3}]),
        )
    ]
    assert [(size["nodes"], size["gpusPerNode"]) for size in sizes] == [
        (2, 8),
        (2, 4),
        (0, 0),
        (0, 0),
    ]
    replica = a_replica("r", "d", "eu", gpus=8, workers=3)
    replica["spec"]["engines"][0]["copies"] = 2
    for member in replica["spec"]["engines"][0]["members"]:
        member["deviceRequests"].append(
            {"name": "nic", "deviceClassName": "rdma", "count": 1}
        )
    pods = await tab.ask_module(
        "capacity.js",
        "m.podsOf(...a)",
        replica,
        [{"name": "gpus", "nodes": 9, "devices": [gpu, nic]}],
    )
    assert pods == [{"pool": "gpus", "gpus": 8}] * 8
    extended = gpu | {"deviceClassName": None, "resourceName": "nvidia.com/gpu"}
    replica = a_replica("r", "d", "eu")
    replica["spec"]["engines"][0]["members"][0]["deviceRequests"] = [
        {"name": "gpu", "resourceName": "nvidia.com/gpu", "count": 2}
    ]
    assert await tab.ask_module(
        "capacity.js",
        "m.podsOf(...a)",
        replica,
        [{"name": "gpus", "nodes": 9, "devices": [extended]}],
    ) == [{"pool": "gpus", "gpus": 2}]


async def test_large_pools_are_drawn_partly_but_summed_completely(
    tab: Tab,
) -> None:
    cluster, expression = (
        a_cluster("eu", nodes=10**9),
        "m.clustersShown(new Map([['eu', a[0]]]), new Map(), {temporalUi: ''})",
    )
    (shown,) = await tab.ask_module("clusters.js", expression, cluster)
    (pool,) = shown["pools"]
    assert (pool["nodes"], len(pool["cells"]), pool["notDrawn"]) == (
        10**9,
        256,
        10**9 - 256,
    )
    assert await tab.ask_module("clusters.js", "[0, 25, 26, 52].map(m.markOf)") == [
        "A",
        "Z",
        "A2",
        "A3",
    ]


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
