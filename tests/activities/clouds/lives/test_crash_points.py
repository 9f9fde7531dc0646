"""A worker that dies at any point of any object: the run ends like an undisturbed one.

One life has one death at each point of one moment. The points are every writing call at
the cloud, before and after, and every wait for the cloud. So each object meets each
moment, in its creation and in its deletion.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.lives.deaths import AFTER, BEFORE, POLLING, Deaths
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake, Json, Life
from tests.activities.clouds.lives.virtual_time import run

Point = tuple[str, str, str]
# Objects that the cloud or the control plane creates and deletes by itself.
NOT_CREATED = {"GKE": {"nodes"}, "EKS": {"access", "nodes"}}


@dataclass
class Whole:
    """The results of one life: objects and warnings when all was Ready, created objects,
    and objects at the end.
    """

    keys: set[str]
    made: Counter[str]
    created: Counter[str]
    in_cluster: tuple[list[str], list[str]]
    remains: list[str]
    deaths: Deaths
    defects: list[str]
    warnings: list[str]


def kind_of(name: str) -> str:
    """Return the existing objects, without the random part of their names."""
    return (
        re.sub("[0-9]{8,}", "", name)
        if name.startswith("projects/")
        else name.rpartition("/")[0] or name.partition(" ")[0]
    )


async def lived(fake: Fake, pools: list[Json], deaths: Deaths) -> Whole:
    life = Life(fake, random.Random(1), deaths)  # noqa: S311 - repeatable on purpose
    with life.temporal.patched():
        try:
            life.begin()
            life.order(*pools)
            assert await life.until_ready(), life.progress["message"]
            keys = set(life.temporal.instance.state.inventory)
            events = life.temporal.instance.state.events
            warnings = [each.message for each in events if each.type == "Warning"]
            made = Counter(map(kind_of, fake.remains()))
            in_cluster = sorted(life.cluster.applied), sorted(life.cluster.releases)
            life.delete()
            assert await life.until_gone(), life.progress["message"]
            created = Counter(map(kind_of, fake.created()))
            return Whole(
                keys,
                made,
                created,
                in_cluster,
                fake.remains(),
                deaths,
                [*life.temporal.defects, *fake.defects()],
                warnings,
            )
        finally:
            await life.stop()


@dataclass
class Case:
    """A fake cloud with a cluster, and the objects of an undisturbed life."""

    fake: Fake
    pools: list[Json]
    reset: Callable[[], None]
    kept: list[Whole]

    def live(self, moment: str) -> Whole:
        """Live with one death at each point of a moment, or without deaths."""
        self.reset()
        seen: set[Point] = set()

        def dies(now: str, doing: str, key: str) -> bool:
            point = now, doing, key
            first = point not in seen
            seen.add(point)
            return first and now == moment

        drawn = random.Random(2)  # noqa: S311 - repeatable on purpose
        return run(lambda: lived(self.fake, self.pools, Deaths(dies)), drawn)

    @property
    def undisturbed(self) -> Whole:
        """A life without deaths, lived once."""
        if not self.kept:
            self.kept.append(self.live(""))
        return self.kept[0]


SOURCES = pytest.mark.parametrize(
    "source", ["GKE", pytest.param("EKS", marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def cases() -> Iterator[Callable[[str], Case]]:
    """Return the case of a cloud, which is created once.

    This is no parametrized fixture, because pytest would order tests by it and create
    it again in each process.
    """
    with ExitStack() as stack:
        made: dict[str, Case] = {}

        def case(source: str) -> Case:
            if source not in made:
                made[source] = _gke(stack) if source == "GKE" else _eks(stack)
            return made[source]

        yield case


def _gke(stack: ExitStack) -> Case:
    google = stack.enter_context(FakeGoogle())
    fake = gke_fake(google)
    return Case(
        fake, [fake.pool(nodeCount=1, minNodeCount=0, maxNodeCount=2)], google.reset, []
    )


def _eks(stack: ExitStack) -> Case:
    aws = stack.enter_context(FakeAws(role="provisioner"))
    stack.enter_context(direct(aws))
    return Case(
        eks_fake(aws),
        [an_eks_pool("efa", className="p5en", fabric={"type": "EFA"})],
        aws.reset,
        [],
    )


@pytest.mark.slow
@SOURCES
def test_every_object_has_crash_points(
    cases: Callable[[str], Case], source: str
) -> None:
    case = cases(source)
    whole = case.undisturbed
    assert (whole.remains, whole.defects, whole.warnings) == ([], [], [])
    created = {
        key
        for moment, doing, key in whole.deaths.passed
        if moment == BEFORE and doing.startswith("create")
    }
    # The key of an access entry contains the digest of its role.
    assert {key.partition("/")[0] for key in whole.keys - created} == NOT_CREATED[
        case.fake.source
    ]
    polled = {
        key
        for moment, doing, key in whole.deaths.passed
        if moment == POLLING and doing == "create"
    }
    deleting = {
        key
        for moment, doing, key in whole.deaths.passed
        if moment == POLLING and doing == "delete"
    }
    assert "cluster" in polled & deleting
    assert {"conn", "sc"} <= created


@pytest.mark.slow
@SOURCES
@pytest.mark.parametrize("moment", [BEFORE, AFTER, POLLING])
def test_a_worker_that_dies_at_any_point_creates_once_and_leaves_nothing(
    cases: Callable[[str], Case], source: str, moment: str
) -> None:
    case = cases(source)
    undisturbed = case.undisturbed
    whole = case.live(moment)
    points = {
        point for point in undisturbed.deaths.passed if point[0] == moment and point[2]
    }
    assert points <= set(whole.deaths.struck), "a worker died at each of them"
    assert set(whole.deaths.struck.values()) == {1}
    assert (whole.made, whole.in_cluster) == (undisturbed.made, undisturbed.in_cluster)
    assert whole.created == undisturbed.created
    assert (whole.remains, whole.defects) == ([], [])
