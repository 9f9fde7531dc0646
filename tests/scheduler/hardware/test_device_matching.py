"""Which hardware takes which engine, and how many nodes that costs."""

from dataclasses import dataclass, field

import pytest

from scheduler.decide import decide_and_explain
from scheduler.explain.refusals import SYNTHETIC_TEXT
from scheduler.fleet.manifests import cluster_view
from scheduler.hardware.device_matching import need_digest
from scheduler.model.inputs import (
    ClusterView,
    DeploymentView,
    EngineView,
    PoolView,
    ScheduleRequest,
)
from tests.scheduler.builders import (
    DRIVER,
    IS_GPU,
    IS_INFINIBAND,
    IS_NIC,
    NOW,
    alone,
    ask,
    at_least,
    below,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gang,
    gpu,
    leader,
    nic,
    places,
    pool,
    pools_of,
    worker,
)


@dataclass(frozen=True)
class Case:
    """A fleet, the engines of one replica, and the pool of each engine (empty: no
    place).
    """

    story: str
    clusters: list[ClusterView]
    engines: list[EngineView]
    want: list[str]
    resolved: list[list[str]] = field(default_factory=list)


def one(*pools: PoolView | int) -> list[ClusterView]:
    return [cluster("a", *pools)]


ANY_GPU = IS_GPU
SMALL_AND_BIG = pool("p", 1, gpu("141Gi", 1, name="big"), gpu("40Gi", 1, name="small"))
TCP = pool("tcp", 2, gpu(), nic("ethernet"))
IB = pool("ib", 2, gpu(), nic())
WANTS_IB = engine("main", alone(ask(), ask(IS_INFINIBAND, name="nic")))
X_SYNTHETIC = pool("x", 2, gpu(claim="Synthetic"), nic())
Y_CLAIMS = pool("y", 2, gpu(), nic())
LEADS_WITH_GPU = engine("main", leader(ask()), worker(1, ask(IS_NIC, name="nic")))
SPLIT = [
    engine("prefill", copies=3, phase="Prefill"),
    engine("decode", copies=2, phase="Decode"),
]

THREE_REQUESTS = [
    engine(
        "main", alone(*(ask(count=count, name=f"r{count}") for count in (10, 11, 12)))
    )
]
WITHOUT_COUNT = cluster_view(
    {
        "metadata": {"name": "a"},
        "status": {
            "gpuPools": [
                {
                    "name": "p",
                    "nodes": 1,
                    "devices": [{"name": "gpu", "driver": DRIVER}],
                }
            ]
        },
    }
).pools

CASES = [
    Case(
        "both selectors of a request match",
        one(1),
        [engine("main", alone(ask(IS_GPU, at_least("141Gi"))))],
        ["p"],
    ),
    Case(
        "a device that is too small takes nothing",
        one(pool("p", 1, gpu("141Gi"))),
        [engine("main", alone(ask(at_least("200Gi"))))],
        [],
    ),
    Case(
        "eight devices do not fit four",
        one(pool("p", 1, gpu(count=4))),
        [engine("main", alone(ask(count=8)))],
        [],
    ),
    Case(
        "the pool with eight devices is found",
        one(pool("x", 1, gpu(count=4)), pool("y", 1, gpu(count=8))),
        [engine("main", alone(ask(count=8)))],
        ["y"],
    ),
    Case(
        "a device count of zero satisfies nothing",
        one(pool("p", 1, gpu(count=0))),
        [engine()],
        [],
    ),
    Case(
        "an absent device count satisfies nothing",
        one(*WITHOUT_COUNT),
        [engine("main", alone(ask(IS_GPU)))],
        [],
    ),
    Case("a pool without nodes hosts nothing", one(pool("p", 0)), [engine()], []),
    Case(
        "a negative device count satisfies nothing",
        one(pool("p", 1, gpu(count=-1))),
        [engine()],
        [],
    ),
    Case(
        "a synthetic device is matched and not claimed",
        one(pool("p", 1, gpu(), nic(claim="Synthetic"))),
        [engine("main", alone(ask(), ask(IS_NIC, name="nic")))],
        ["p"],
        [["gpu"]],
    ),
    Case(
        "a missing device refuses the pool",
        one(pool("p", 1, gpu())),
        [engine("main", alone(ask(), ask(IS_NIC, name="nic")))],
        [],
    ),
    Case(
        "two requests never share one device",
        one(pool("p", 1, gpu(count=1))),
        [engine("main", alone(ask(name="one"), ask(name="two")))],
        [],
    ),
    Case(
        "five and five do not fit eight",
        one(1),
        [engine("main", alone(ask(count=5, name="one"), ask(count=5, name="two")))],
        [],
    ),
    Case(
        "four and four fit eight, resolved in request order",
        one(1),
        [engine("main", alone(ask(count=4, name="one"), ask(count=4, name="two")))],
        ["p"],
        [["one", "two"]],
    ),
    Case(
        "a narrow request gets the device that a wider one would have taken",
        one(SMALL_AND_BIG),
        [engine("main", alone(ask(ANY_GPU, name="any"), ask(name="big")))],
        ["p"],
        [["any", "big"]],
    ),
    Case(
        "one request spans entries of one class",
        one(pool("p", 1, gpu(count=4, name="left"), gpu(count=4, name="right"))),
        [engine("main", alone(ask(count=8)))],
        ["p"],
    ),
    Case(
        "one request never spans two classes",
        one(
            pool(
                "p",
                1,
                gpu(count=4, name="left"),
                gpu(count=4, name="right", device_class="other.example.com"),
            )
        ),
        [engine("main", alone(ask(count=8)))],
        [],
    ),
    Case(
        "a claimable device is preferred to a synthetic one listed before it",
        one(pool("p", 1, gpu(claim="Synthetic", name="shadow"), gpu(), nic())),
        [engine("main", alone(ask(), ask(IS_NIC, name="nic")))],
        ["p"],
        [["gpu", "nic"]],
    ),
    Case(
        "a pool with nothing to claim is not eligible",
        one(pool("p", 1, gpu(claim="Synthetic"))),
        [engine()],
        [],
    ),
    Case("the fabric decides, second in order", one(TCP, IB), [WANTS_IB], ["ib"]),
    Case("the fabric decides, first in order", one(IB, TCP), [WANTS_IB], ["ib"]),
    Case(
        "a gang is placed where all its members fit",
        one(pool("p141", 2, gpu("141Gi")), pool("p200", 2, gpu("200Gi"))),
        [
            engine(
                "main",
                leader(ask(at_least("141Gi"))),
                worker(1, ask(at_least("200Gi"))),
            )
        ],
        ["p200"],
    ),
    Case(
        "a gang is never split over two pools",
        one(pool("p141", 2, gpu("141Gi")), pool("p200", 2, gpu("200Gi"))),
        [
            engine(
                "main", leader(ask(at_least("200Gi"))), worker(1, ask(below("200Gi")))
            )
        ],
        [],
    ),
    Case(
        "free nodes of a pool that does not match do not count",
        [
            cluster("a", pool("p", 1), pool("q", 8, gpu("80Gi"))),
            cluster("b", pool("p", 2)),
        ],
        [gang()],
        ["p"],
    ),
    Case(
        "a member that could claim is not stranded where it cannot",
        one(X_SYNTHETIC, Y_CLAIMS),
        [LEADS_WITH_GPU],
        ["y"],
    ),
    Case(
        "a member that is synthetic everywhere costs no node",
        one(pool("x", 1, gpu(claim="Synthetic"), nic())),
        [LEADS_WITH_GPU],
        ["x"],
    ),
    Case(
        "a leader without selector costs no node",
        one(1),
        [engine("main", leader(), worker(1))],
        ["p"],
        [[], ["gpu"]],
    ),
    Case(
        "one member that fits nowhere refuses the replica",
        one(4),
        [engine("main", leader(ask(at_least("999Gi"))), worker(1))],
        [],
    ),
    Case("sixteen nodes do not fit fifteen", one(15), [gang(15)], []),
    Case("sixteen nodes fit sixteen", one(16), [gang(15)], ["p"]),
    Case(
        "copies are never split over pools",
        one(pool("p", 2), pool("q", 2)),
        [engine(copies=4)],
        [],
    ),
    Case("copies go whole onto one pool", one(4), [engine(copies=4)], ["p"]),
    Case("five nodes do not fit four", one(4), SPLIT, []),
    Case("both engines share a pool of five", one(5), SPLIT, ["p", "p"]),
    Case(
        "each engine gets the pool of its size",
        one(pool("p", 3), pool("q", 2)),
        SPLIT,
        ["p", "q"],
    ),
    Case(
        "each engine gets the pool of its size, listed the other way",
        one(pool("q", 2), pool("p", 3)),
        SPLIT,
        ["p", "q"],
    ),
    Case(
        "four and one: decode fits nowhere",
        one(pool("p", 4), pool("q", 1)),
        SPLIT,
        [],
    ),
    Case(
        "an engine with a choice of pools leaves the only pool to one without",
        one(pool("p141", 1, gpu("141Gi")), pool("p40", 1, gpu("40Gi"))),
        [engine("flex", alone(ask(ANY_GPU))), engine("big", alone(ask()))],
        ["p40", "p141"],
    ),
    Case(
        "a worker without a block is one pod",
        one(2),
        [engine("main", leader(ask()), worker())],
        ["p"],
    ),
    Case(
        "a claim of 32 devices is accepted",
        one(pool("p", 1, gpu(count=64))),
        [
            engine(
                "main", alone(ask(count=16, name="left"), ask(count=16, name="right"))
            )
        ],
        ["p"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_an_engine_is_placed_where_its_devices_are(case: Case) -> None:
    decision = decided(fleet(*case.clusters), deployment(*case.engines))
    assert pools_of(decision) == case.want
    if case.resolved:
        members = [m for p in decision.placements for e in p.engines for m in e.members]
        assert [
            [request.name for request in member.requests] for member in members
        ] == case.resolved


@pytest.mark.parametrize(
    ("story", "clusters", "view", "code"),
    [
        (
            "too small",
            one(1),
            deployment(engine("main", alone(ask(at_least("200Gi"))))),
            "NoPoolMatches",
        ),
        (
            "synthetic only",
            one(pool("p", 1, gpu(claim="Synthetic"))),
            deployment(),
            "NoPoolMatches",
        ),
        ("too few nodes", one(15), deployment(gang(15)), "InsufficientNodes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cluster_that_does_not_fit_reports_its_filter(
    story: str, clusters: list[ClusterView], view: DeploymentView, code: str
) -> None:
    del story
    decision = decided(fleet(*clusters), view)
    assert [group.code for group in decision.diagnosis.groups] == [code]


NO_MATCH = (
    f"Standalone: request gpu: selector {{}} matched 0 of 1 entries: {IS_NIC}; "
    "closest device gpu: driver is gpu.nvidia.com, wanted nic.example.com"
)
REFUSED: list[tuple[str, PoolView, list[EngineView], str, str]] = [
    (
        "the second selector is false",
        pool(),
        [engine("main", alone(ask(IS_GPU, IS_NIC)))],
        "SelectorNoMatch",
        NO_MATCH.format(2),
    ),
    (
        "the first selector is false",
        pool(),
        [engine("main", alone(ask(IS_NIC, IS_GPU)))],
        "SelectorNoMatch",
        NO_MATCH.format(1),
    ),
    (
        "a count of zero",
        pool("p", 1, gpu(count=0)),
        [engine()],
        "DeviceCountShort",
        "Standalone: request gpu needs 1 devices, best 0",
    ),
    (
        "a negative count",
        pool("p", 1, gpu(count=-1)),
        [engine()],
        "DeviceCountShort",
        "Standalone: request gpu needs 1 devices, best 0",
    ),
    ("no nodes", pool("p", 0), [engine()], "InsufficientNodes", "needs 1, 0 free of 0"),
    (
        "synthetic only",
        pool("p", 1, gpu(claim="Synthetic")),
        [engine()],
        "SyntheticOnly",
        SYNTHETIC_TEXT,
    ),
    (
        "82 33 devices in one claim",
        pool("p", 1, gpu(count=64)),
        THREE_REQUESTS,
        "TooManyDevices",
        "Standalone: its requests claim 33 devices, but one ResourceClaim holds at most 32",
    ),
]


@pytest.mark.parametrize(
    ("story", "offered", "engines", "code", "detail"),
    REFUSED,
    ids=[row[0] for row in REFUSED],
)
def test_a_pool_that_takes_no_engine_says_why(
    story: str, offered: PoolView, engines: list[EngineView], code: str, detail: str
) -> None:
    del story
    (explained,) = decide_and_explain(
        fleet(cluster("a", offered)), [ScheduleRequest("1", deployment(*engines))], NOW
    )
    assert explained.decision.placements == ()
    found = explained.clusters["a"].pools["p"]
    assert (found.reason, found.detail) == (code, f"engine main: {detail}")


def test_a_qualified_attribute_splits_at_its_first_slash() -> None:
    entry = gpu()
    tagged = type(entry)(
        entry.name,
        entry.claim,
        entry.driver,
        entry.device_class,
        entry.count,
        (("a.b/c", "string", "yes"),),
        entry.capacity,
    )
    selector = 'device.attributes["a.b"].c == "yes"'
    decision = decided(
        fleet(cluster("a", pool("p", 1, tagged))),
        deployment(engine("main", alone(ask(selector)))),
    )
    assert places(decision) == ["a/0"]


COSTS = [
    ("single GPU or tensor parallel on one node", engine(), 1),
    ("two-node gang", gang(1), 2),
    ("replicated gang", gang(1, copies=3), 6),
    ("throughput", engine(copies=4), 4),
    ("gang of sixteen nodes", gang(15), 16),
    ("leader that only serves the API", engine("main", leader(), worker(1)), 1),
]


@pytest.mark.parametrize(
    ("story", "shape", "nodes"), COSTS, ids=[row[0] for row in COSTS]
)
def test_node_cost_is_pods_of_members_that_claim_times_copies(
    story: str, shape: EngineView, nodes: int
) -> None:
    del story
    assert places(decided(fleet(cluster("a", nodes)), deployment(shape))) == ["a/0"]
    assert places(decided(fleet(cluster("a", nodes - 1)), deployment(shape))) == []


def test_device_plugin_devices_are_claimed_like_dra_ones_and_come_second() -> None:
    plugin = gpu(claim="DevicePlugin", name="plugin")
    only = decided(fleet(cluster("a", pool("p", 1, plugin))), deployment())
    both = decided(fleet(cluster("a", pool("p", 1, plugin, gpu()))), deployment())
    resolved = [d.placements[0].engines[0].members[0].requests[0] for d in (only, both)]
    assert [(s.device_class, s.resource_name) for s in resolved] == [
        ("", "nvidia.com/gpu"),
        ("gpu.nvidia.com", ""),
    ]


def test_the_limit_of_a_claim_does_not_concern_device_plugins() -> None:
    requests = tuple(ask(count=11, name=f"r{i}") for i in range(3))
    world = fleet(cluster("a", pool("p", 1, gpu(count=64, claim="DevicePlugin"))))
    assert places(decided(world, deployment(engine("main", alone(*requests))))) == [
        "a/0"
    ]


def test_every_edit_of_a_request_changes_the_digest_of_its_member() -> None:
    requests = [
        (),
        (ask(),),
        (ask(name="other"),),
        (ask(count=2),),
        (ask(IS_GPU),),
        (ask(IS_GPU, IS_NIC),),
        (ask(IS_NIC, IS_GPU),),
        (ask(), ask()),
    ]
    digests = [need_digest(each) for each in requests]
    assert digests[0] == ""
    assert len(set(digests)) == len(requests)
    assert digests[1] == need_digest((ask(),))
