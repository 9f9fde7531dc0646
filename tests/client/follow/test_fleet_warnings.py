"""`apply` warns of labels and caches that neither the fleet nor the files have."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from api_types.pins.features import MULTI_NODE
from api_types.resources.kinds import BY_KIND, KindInfo
from client.follow.fleet_warnings import warnings_of
from fleet_client.errors import Forbidden, NoAnswer
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from tests.api_types.builders import (
    GANG_LEADER,
    GANG_WORKER,
    a_cache,
    a_cluster,
    a_deployment,
    accepted,
    an_engine,
    merged,
)

NO_CLUSTER = (
    "ModelDeployment ml/qwen: spec.template.spec.clusterSelector: no "
    "InferenceCluster has these labels yet"
)
NO_CACHE = (
    "ModelDeployment ml/qwen: spec.template.spec.modelCacheRef.name: ModelCache "
    '"weights" does not exist yet in namespace ml'
)
GOLD = a_deployment(clusterSelector={"matchLabels": {"tier": "gold"}})
GANG = a_deployment(an_engine(members=[GANG_LEADER, GANG_WORKER]))
NO_GANGS = (
    "ModelDeployment ml/qwen: spec.template.spec.engines: no selected InferenceCluster "
    f"supports it yet: {MULTI_NODE.lacking()}"
)
CACHED = a_deployment(modelCacheRef={"name": "weights"})


class Fleet:
    """A fleet with one cluster and these caches.

    `caches` maps a name to True for an existing cache, and to None for one that does
    not answer.
    """

    def __init__(
        self,
        labels: dict[str, str],
        *,
        answered: bool = True,
        missing: tuple[str, ...] = (),
        caches: dict[str, bool | None] | None = None,
    ) -> None:
        self.cluster = ListedObject(
            Target.of(BY_KIND["InferenceCluster"], None, "oslo"),
            {"metadata": {"labels": labels}, "status": {"missingFeatures": missing}},
            answered,
        )
        self.caches = caches or {}
        self.reads: list[str] = []

    async def list(
        self, kind: KindInfo, namespace: str | None
    ) -> Sequence[ListedObject]:
        assert namespace is None
        self.reads.append(kind.kind)
        return [self.cluster]

    async def find(self, target: Target) -> dict[str, Any] | None:
        self.reads.append(target.workflow_id)
        found = self.caches.get(target.name, False)
        if found is None:
            raise NoAnswer("no worker answers", next_step="none")
        return {} if found else None


class Hidden(Fleet):
    """A fleet that the user may not read."""

    async def list(
        self, kind: KindInfo, namespace: str | None
    ) -> Sequence[ListedObject]:
        await super().list(kind, namespace)
        raise Forbidden("you may not do this", next_step="none")

    async def find(self, target: Target) -> dict[str, Any] | None:
        await super().find(target)
        raise Forbidden("you may not do this", next_step="none")


CASES: list[tuple[str, Fleet, list[dict[str, Any]], list[str], list[str]]] = [
    (
        "nothing is read for a manifest that names nothing",
        Fleet({}),
        [a_deployment()],
        [],
        [],
    ),
    (
        "a cluster has the labels",
        Fleet({"tier": "gold"}),
        [GOLD],
        [],
        ["InferenceCluster"],
    ),
    (
        "no cluster has the labels",
        Fleet({"tier": "silver"}),
        [GOLD],
        [NO_CLUSTER],
        ["InferenceCluster"],
    ),
    (
        "a cluster that does not answer may have them",
        Fleet({}, answered=False),
        [GOLD],
        [],
        ["InferenceCluster"],
    ),
    (
        "no cluster has a feature",
        Fleet({}, missing=("multiNode",)),
        [GANG],
        [NO_GANGS],
        ["InferenceCluster"],
    ),
    (
        "a cluster in the files may have the feature",
        Fleet({}, missing=("multiNode",)),
        [GANG, a_cluster()],
        [],
        ["InferenceCluster"],
    ),
    (
        "a cluster that the user may not list may have the feature",
        Hidden({}, missing=("multiNode",)),
        [GANG],
        [],
        ["InferenceCluster"],
    ),
    (
        "clusters that the user may not list may have them",
        Hidden({}),
        [GOLD],
        [],
        ["InferenceCluster"],
    ),
    (
        "a cache that the user may not see may exist",
        Hidden({}),
        [CACHED],
        [],
        ["modelcache/ml/weights"],
    ),
    (
        "a cluster in the files has them",
        Fleet({}),
        [GOLD, merged(a_cluster(), {"metadata": {"labels": {"tier": "gold"}}})],
        [],
        ["InferenceCluster"],
    ),
    (
        "the cache exists",
        Fleet({}, caches={"weights": True}),
        [CACHED],
        [],
        ["modelcache/ml/weights"],
    ),
    (
        "the cache does not exist",
        Fleet({}),
        [CACHED],
        [NO_CACHE],
        ["modelcache/ml/weights"],
    ),
    (
        "a cache that does not answer exists",
        Fleet({}, caches={"weights": None}),
        [CACHED],
        [],
        ["modelcache/ml/weights"],
    ),
    ("the cache is in the files", Fleet({}), [CACHED, a_cache()], [], []),
]


@pytest.mark.parametrize(
    ("fleet", "documents", "want", "reads"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
async def test_apply_warns_of_labels_and_caches_that_the_fleet_lacks(
    fleet: Fleet, documents: list[dict[str, Any]], want: list[str], reads: list[str]
) -> None:
    manifests = [accepted(document).manifest for document in documents]
    assert await warnings_of(cast("ControlPlane", fleet), manifests) == want
    assert fleet.reads == reads
