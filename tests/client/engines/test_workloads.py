"""Which engines a command means, and what it says to users of the front."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from api_types.environment import SERVER_VARIABLE
from api_types.resources.kinds import KindInfo
from api_types.setting_types import MIRROR
from client.engines.cluster_access import connection_of, require_direct_way
from client.engines.workloads import (
    EngineChoice,
    EngineWorkload,
    engine_workloads,
    engines_target,
)
from fleet_client.errors import NotFound, Refused
from fleet_client.objects import FleetObjects
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target

Tree = dict[str, Any]


def a_replica(name: str, cluster: str, **engines: str) -> Tree:
    """Return a replica with the kind of each engine's workload."""
    return {
        "kind": "ModelReplica",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"clusterName": cluster},
        "status": {
            "engines": [
                {"name": engine, "kind": kind, "workloadName": f"{name}-{engine}"}
                for engine, kind in engines.items()
            ]
        },
    }


ALL = EngineChoice()
REPLICAS = [
    a_replica("qwen-1", "eu", main="Deployment", big="LeaderWorkerSet"),
    a_replica("qwen-2", "us", main="Deployment"),
]
EU_MAIN = EngineWorkload(
    "eu", "ml", "qwen-1", "main", "modelplane.ai/workload=qwen-1-main"
)
EU_BIG = EngineWorkload(
    "eu", "ml", "qwen-1", "big", "leaderworkerset.sigs.k8s.io/name=qwen-1-big"
)
US_MAIN = EngineWorkload(
    "us", "ml", "qwen-2", "main", "modelplane.ai/workload=qwen-2-main"
)


class Objects:
    """A fleet of one deployment with two replicas."""

    def __init__(self, replicas: Sequence[Tree], cluster: Tree | None = None) -> None:
        self._replicas, self._cluster = replicas, cluster

    async def describe(self, target: Target) -> Tree:
        if target.kind.kind == "InferenceCluster":
            assert self._cluster
            return self._cluster
        named = [
            one for one in self._replicas if one["metadata"]["name"] == target.name
        ]
        return named[0] if named else {}

    async def list(
        self, kind: KindInfo, namespace: str | None, *, deployment: str = ""
    ) -> list[ListedObject]:
        assert deployment == "qwen"
        return [
            ListedObject(Target.of(kind, namespace, one["metadata"]["name"]), one)
            for one in self._replicas
        ]


async def found(
    word: str, choice: EngineChoice = ALL, replicas: Sequence[Tree] = REPLICAS
) -> list[EngineWorkload]:
    objects = cast(FleetObjects, Objects(replicas))
    return await engine_workloads(objects, engines_target(word, "ml"), choice, MIRROR)


@pytest.mark.parametrize(
    ("word", "choice", "want"),
    [
        ("md/qwen", EngineChoice(), [EU_MAIN, EU_BIG, US_MAIN]),
        ("mr/qwen-2", EngineChoice(), [US_MAIN]),
        ("md/qwen", EngineChoice(replica="qwen-1"), [EU_MAIN, EU_BIG]),
        ("md/qwen", EngineChoice(replica="2"), [US_MAIN]),
        ("modeldeployment/qwen", EngineChoice(engine="main"), [EU_MAIN, US_MAIN]),
        ("md/qwen", EngineChoice("1", "big"), [EU_BIG]),
    ],
)
async def test_a_replica_and_an_engine_can_be_chosen(
    word: str, choice: EngineChoice, want: list[EngineWorkload]
) -> None:
    assert await found(word, choice) == want


@pytest.mark.parametrize(
    ("choice", "says", "next_step"),
    [
        (EngineChoice(replica="3"), "no replica '3'", "the names are qwen-1, qwen-2"),
        (
            EngineChoice(engine="mian"),
            "'mian'; did you mean main?",
            "the names are big, main",
        ),
    ],
)
async def test_a_misspelt_name_is_refused_with_the_known_ones(
    choice: EngineChoice, says: str, next_step: str
) -> None:
    with pytest.raises(Refused, match=says) as refused:
        await found("md/qwen", choice)
    assert refused.value.next_step == next_step


async def test_a_deployment_without_a_placed_replica_has_no_engines() -> None:
    with pytest.raises(NotFound, match="no engine on a cluster yet") as failed:
        await found("md/qwen", replicas=[])
    assert failed.value.next_step.startswith("`modelplane explain md/qwen -n ml`")


@pytest.mark.parametrize("word", ["ic/eu", "ms/qwen", "qwen"])
def test_other_objects_have_no_engines(word: str) -> None:
    with pytest.raises(Refused) as refused:
        engines_target(word, None)
    assert "`md/NAME` or `mr/NAME`" in refused.value.next_step


async def test_one_namespace_for_all_pods_is_searched_instead() -> None:
    objects = cast(FleetObjects, Objects(REPLICAS[1:]))
    target = engines_target("mr/qwen-2", "ml")
    (one,) = await engine_workloads(objects, target, EngineChoice(), "models")
    assert one == US_MAIN._replace(namespace="models")


def test_the_front_refuses_with_the_command_for_each_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    require_direct_way("logs", [EU_MAIN])
    monkeypatch.setenv(SERVER_VARIABLE, "https://front.example")
    for verb, command in (("logs", "logs"), ("exec", "get pods")):
        with pytest.raises(Refused, match=f"the front does not serve `{verb}`") as no:
            require_direct_way(verb, [EU_MAIN])
        assert no.value.details == (
            f"cluster eu: kubectl {command} -n ml -l modelplane.ai/workload=qwen-1-main",
        )


def a_cluster(**source: Any) -> Tree:
    return {"kind": "InferenceCluster", "spec": {"cluster": source}}


EXISTING = {"secretRef": {"name": "eu-kubeconfig", "key": "kubeconfig"}}


async def test_a_cluster_is_opened_with_its_kubeconfig() -> None:
    tree = a_cluster(source="Existing", existing=EXISTING)
    objects = cast(FleetObjects, Objects([], tree))
    connection = await connection_of(objects, "logs", EU_MAIN)
    assert (connection.cluster, connection.namespace, connection.name) == (
        "eu",
        "modelplane-system",
        "eu-kubeconfig",
    )


@pytest.mark.parametrize(
    "source",
    [
        {"source": "EKS", "eks": {"region": "eu-west-1"}},
        {
            "source": "Existing",
            "existing": EXISTING
            | {
                "identitySecretRef": {
                    "name": "token",
                    "key": "credentials",
                    "type": "GoogleApplicationCredentials",
                }
            },
        },
    ],
    ids=["created", "an identity"],
)
async def test_a_cluster_with_an_identity_of_its_cloud_is_refused(source: Tree) -> None:
    objects = cast(FleetObjects, Objects([], a_cluster(**source)))
    with pytest.raises(Refused, match="only workers use") as refused:
        await connection_of(objects, "logs", EU_MAIN)
    assert refused.value.details == (EU_MAIN.kubectl("logs"),)
