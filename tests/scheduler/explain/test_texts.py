"""Whole texts of explanations: reasons for a place, refusals, near names and gangs."""

from types import SimpleNamespace
from typing import Any

import pytest

from api_types.pins.features import MODEL_NAMES
from scheduler.cel.comparisons import Unmet
from scheduler.decide import decide_and_explain
from scheduler.explain.cluster_report import PoolDetail
from scheduler.explain.fleet_names import (
    absent_labels,
    class_text,
    label_texts,
    near_label,
    unpublished_text,
)
from scheduler.explain.gang import Gang
from scheduler.explain.near_miss import Miss
from scheduler.explain.placement_report import _in_words
from scheduler.explain.refusals import filter_text
from scheduler.explain.selector_gap import SelectorGap
from scheduler.explain.whole_replica import PoolNeed
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.device_matching import shortened
from scheduler.model.decision import Placement
from scheduler.model.inputs import CacheView, ScheduleRequest
from tests.scheduler.builders import (
    NOW,
    cluster,
    decided,
    deployment,
    fleet,
    message,
    pool,
)

CACHE = CacheView("Present", "w")


@pytest.mark.parametrize(
    ("name", "value", "other", "text"),
    [
        ("spread", 2, 3, "2 replicas of this deployment are here, 3 there"),
        ("free", -759, -503, "75% of the nodes stay free, 50% there"),
        ("binpack", 7, 11, "7 nodes stay free in its pools, 11 there"),
        ("cost", 12_345, 99_000, "its nodes cost 12.34 per hour, 99.00 there"),
        ("locality", 0, 1, "ModelCache w is Ready here, Hydrating there"),
        ("locality", 2, 3, "ModelCache w is Pending here, not staged there"),
        ("networks", 0, 1, "its engines share one network here, but not there"),
        (
            "preferences",
            -7,
            5,
            "preferred affinity and spread are met better (-7 against 5, lower is better)",
        ),
        (
            "domain:example.com/region",
            2,
            5,
            "2 replicas of this deployment are in its example.com/region, 5 in the other one",
        ),
    ],
)
def test_the_text_for_the_difference_of_two_clusters(
    name: str, value: int, other: int, text: str
) -> None:
    for adds_up, more in ((False, ""), (True, ", in the weighted sum")):
        scorer = SimpleNamespace(adds_up=adds_up)
        placer: Any = SimpleNamespace(deployment=deployment(cache=CACHE), scorer=scorer)
        assert _in_words(placer, name, value, other) == f"{text}{more}"


@pytest.mark.parametrize(
    ("code", "what", "text"),
    [
        ("LabelMismatch", "", "didn't match clusterSelector"),
        ("CacheFootprint", "", "are outside ModelCache w's footprint"),
        ("CacheIncapable", "", "can't stage ModelCache"),
        ("Deleting", "", "are being deleted"),
        ("NotReady", "", "aren't Ready"),
        ("NoGateway", "", "have no gateway address"),
        ("Tainted", "a=b:NoSchedule", "had untolerated taint {a=b:NoSchedule}"),
        ("FeatureMissing", "modelNames", "lack modelNames"),
        ("NoPools", "", "publish no pools"),
        ("NoPoolMatches", "x", "had no pool for engine x"),
        ("InsufficientNodes", "x", "had too few free nodes for engine x"),
        ("QuotaExceeded", "(used)", "were over quota (used)"),
        ("QuotaExceeded", "", "were over quota"),
        ("Policy", "a rule", "violated a rule"),
    ],
)
def test_the_text_of_each_filter(code: str, what: str, text: str) -> None:
    assert filter_text(code, deployment(cache=CACHE), what) == text


NEEDS = (PoolNeed("p", 7, 3, (("x", 7),)),)
TWO_POOLS = (*NEEDS, PoolNeed("q", 5, 11, (("y", 5),)))
ON_A, ON_B = (Placement(name, 0, "r", "u", "Create", ()) for name in "ab")


@pytest.mark.parametrize(
    ("placements", "miss", "text"),
    [
        ((), None, ""),
        ((), Miss(4, "a", ""), ""),
        (
            (ON_A,),
            Miss(4, "a", "no devices"),
            "best: no devices, and 1 of 3 replicas of the gang fit",
        ),
        (
            (),
            Miss(4, "a", "", NEEDS),
            "a gang of 3 replicas needs 21 nodes, 3 free on a/p",
        ),
        (
            (ON_A,),
            Miss(4, "a", "", NEEDS),
            "a gang of 3 replicas needs 21 nodes, 10 free on a/p",
        ),
        (
            (ON_A, ON_B),
            Miss(4, "a", "", NEEDS),
            "a gang of 3 replicas needs 21 nodes, 17 free",
        ),
        (
            (ON_A,),
            Miss(4, "a", "", TWO_POOLS),
            "a gang of 3 replicas needs 36 nodes, 20 free",
        ),
    ],
)
def test_a_gang_needs_all_its_nodes(
    placements: tuple[Placement, ...], miss: Miss | None, text: str
) -> None:
    assert Gang(3, placements).text(miss) == text


def gap(*unmet: Unmet) -> str:
    return SelectorGap(0, "gpu", 1, "", "d", unmet).detail


HAS, LACKS = Unmet("memory", "24Gi", "at least 80Gi"), Unmet("cc", "", "9.0.0")
NO_CC = "has no cc, wanted 9.0.0"


@pytest.mark.parametrize(
    ("unmet", "text"),
    [
        ((), ""),
        ((HAS,), "closest device d: memory is 24Gi, wanted at least 80Gi"),
        ((LACKS,), "closest device d: has no cc, wanted 9.0.0"),
        (
            (HAS, LACKS, LACKS),
            f"closest device d: memory is 24Gi, wanted at least 80Gi, {NO_CC}, {NO_CC}",
        ),
        (
            (LACKS,) * 5,
            f"closest device d: {NO_CC}, {NO_CC}, {NO_CC} and 2 more",
        ),
        ((Unmet("b", "", "1", tuple("abcde")),), "closest device d: has no b, only b, a, c, d, e"),
        (
            (Unmet("b", "", "1", tuple("abcdefg")),),
            "closest device d: has no b, only b, a, c, d, e and 2 more",
        ),
    ],
)  # fmt: skip
def test_the_text_for_the_closest_device(unmet: tuple[Unmet, ...], text: str) -> None:
    assert gap(*unmet) == text


def test_a_long_selector_is_cut_and_its_lines_are_joined() -> None:
    assert shortened(" a\n  ==  b ") == "a == b"
    assert [len(shortened("x" * length)) for length in (159, 160, 161, 300)] == [
        159,
        160,
        160,
        160,
    ]
    assert shortened("x" * 161) == "x" * 157 + "..."


WANTED = {f"key-{n}": "x" for n in range(7)}


@pytest.mark.parametrize(
    ("labels", "wanted", "texts"),
    [
        ({"zone": "a"}, {"zone": "a"}, []),
        ({"zone": "a"}, {"zone": "b"}, ["zone=b, has a"]),
        ({"zones": "a"}, {"zone": "b"}, ["zone=b, has zones=a"]),
        ({"other": "a"}, {"zone": "b"}, ["zone=b"]),
        ({}, {"b": "1", "a": "2"}, ["a=2", "b=1"]),
        ({}, dict(list(WANTED.items())[:5]), [f"key-{n}=x" for n in range(5)]),
        ({}, WANTED, [*(f"key-{n}=x" for n in range(5)), "and 2 more"]),
    ],
)
def test_the_labels_that_a_cluster_lacks(
    labels: dict[str, str], wanted: dict[str, str], texts: list[str]
) -> None:
    info = fleet(cluster("a", 1, labels=labels)).clusters["a"]
    assert list(label_texts(info, wanted)) == texts


@pytest.mark.parametrize(
    ("wanted", "near", "text"),
    [
        ({"zone": "north"}, ("zone", "north"), ""),
        (
            {"zone": "nort"},
            ("zone", "north"),
            "no cluster has zone=nort, nearest: zone=north",
        ),
        (
            {"zones": "north"},
            ("zone", "north"),
            "no cluster has zones=north, nearest: zone=north",
        ),
        ({"zones": "nort"}, None, "no cluster has zones=nort"),
        ({"zone": "else"}, None, "no cluster has zone=else"),
        ({"other": "north"}, None, "no cluster has other=north"),
    ],
)
def test_a_label_that_no_cluster_has(
    wanted: dict[str, str], near: tuple[str, str] | None, text: str
) -> None:
    overlay = FleetOverlay(fleet(cluster("a", 1, labels={"zone": "north"})), NOW)
    assert absent_labels(overlay, wanted) == text
    if text:
        ((key, value),) = wanted.items()
        assert near_label(overlay, key, value) == near


def test_a_pool_whose_class_is_missing_says_so() -> None:
    missing = pool("p", 4, class_name="h20", class_missing=True)
    world = fleet(cluster("a", missing, pool("q", 4, class_name="h200")))
    (found,) = decide_and_explain(world, [ScheduleRequest("why", deployment())], NOW)
    assert found.clusters["a"].pools["p"] == PoolDetail(
        "SelectorNoMatch",
        "InferenceClass h20 does not exist, nearest: h200; running replicas stay on the pool",
    )


def test_an_unusable_pool_and_a_missing_feature_say_what_to_do() -> None:
    unusable = pool("p", 4, unusable="DeviceClass x does not exist")
    world = fleet(
        cluster("a", unusable),
        cluster("b", 1, missing_features=("dataParallel", "modelNames")),
    )
    view = deployment(features=("inferencePools", "modelNames"))
    (found,) = decide_and_explain(world, [ScheduleRequest("why", view)], NOW)
    assert found.clusters["a"].pools["p"] == PoolDetail(
        "SelectorNoMatch",
        "DeviceClass x does not exist; running replicas stay on the pool",
    )
    lacking = found.clusters["b"]
    assert (lacking.reason, lacking.detail) == ("FeatureMissing", MODEL_NAMES.lacking())


def test_a_pool_that_the_cloud_does_not_provide_has_no_nodes_and_says_why() -> None:
    why = "the cloud provides 0 of 4 nodes: CapacityUnavailable: no machines"
    missing = pool("p", 0, shortage=why)
    world = fleet(cluster("a", pool("p", 0)), cluster("b", missing, pool("q", 1)))
    request = ScheduleRequest("why", deployment(replicas=2))
    (found,) = decide_and_explain(world, [request], NOW)
    assert {name: found.clusters[name].pools["p"] for name in "ab"} == {
        "a": PoolDetail("InsufficientNodes", "engine main: needs 1, 0 free of 0"),
        "b": PoolDetail(
            "InsufficientNodes", f"engine main: needs 1, 0 free of 0; {why}"
        ),
    }


def test_the_summary_names_the_cloud_that_has_no_nodes_or_suggests_another_pool() -> (
    None
):
    why = "the cloud provides 0 of 4 nodes: no machines; next attempt at 12:10"
    lacking = cluster("a", pool("p", 0, shortage=why))
    said = message(decided(fleet(lacking), deployment()))
    assert said.endswith(f". On a/p {why}.")
    said = message(decided(fleet(lacking, cluster("b", 0)), deployment()))
    assert said.endswith(". One more replica would fit with one more node in b/p.")


@pytest.mark.parametrize(
    ("pools", "text"),
    [
        (0, ""),
        (1, "; pool p0: {no}"),
        (3, "; pool p0: {no}; pool p1: {no}; pool p2: {no}"),
        (5, "; pool p0: {no}; pool p1: {no}; pool p2: {no} and 2 more pools"),
    ],
)
def test_only_three_of_many_unpublished_pools_are_listed(pools: int, text: str) -> None:
    view = cluster("a", 1, unpublished=tuple((f"p{n}", "none") for n in range(pools)))
    overlay = FleetOverlay(fleet(view), NOW)
    expected = text.format(no=class_text(overlay, "none"))
    assert unpublished_text(overlay, overlay.clusters["a"], "; ") == expected
