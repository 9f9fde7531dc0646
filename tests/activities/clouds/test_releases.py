"""Helm releases of a cloud's cluster, whose values contain facts of its objects."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from activities.clients.helm.port import HelmPool, Release, ReleaseState
from activities.clouds.desired.owner import owner_at
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.handler import ObjectWork
from activities.cluster_objects.cluster_api import ClusterPool
from api_types.errors import NotYet
from api_types.labels import POD_IDENTITY
from api_types.messages.clouds import CloudAccount
from tests.activities.clouds.builders import (
    INSTALLATION,
    TOKEN,
    UID,
    an_eks_pool,
    eks,
    object_of,
)

ACCOUNT = CloudAccount(
    provider="EKS",
    cluster="prod",
    cluster_uid=UID,
    secret="s",  # noqa: S106
    region="r",
    installation=INSTALLATION,
)
AUTOSCALER = object_of(eks(an_eks_pool()), "chart/cluster-autoscaler")


class Helm:
    """A Helm that records its calls."""

    def __init__(self) -> None:
        self.installed: list[Release] = []
        self.removed: list[tuple[str, str]] = []

    @asynccontextmanager
    async def at(self, _: Any) -> AsyncIterator[Any]:
        yield self

    async def ensure(self, release: Release) -> ReleaseState:
        self.installed.append(release)
        return ReleaseState(
            release.name, release.namespace, len(self.installed), "deployed", "", "", ""
        )

    async def uninstall(self, name: str, namespace: str) -> None:
        self.removed.append((name, namespace))


def wanted(**known: dict[str, str]) -> ObjectWork:
    return ObjectWork(
        owner_at(ACCOUNT),
        AUTOSCALER,
        {key.replace("_", "/"): facts for key, facts in known.items()},
        TOKEN,
    )


def in_cluster(helm: Helm) -> InCluster:
    return InCluster(cast("ClusterPool", None), cast("HelmPool", helm))


async def test_pods_of_the_autoscaler_restart_when_their_pod_identity_changes() -> None:
    helm = Helm()
    for identity in ("a-1", "a-2"):
        await in_cluster(helm).ensure(ACCOUNT, wanted(pia_autoscaler={"id": identity}))
    assert [each.values["podAnnotations"] for each in helm.installed] == [
        {POD_IDENTITY: "a-1"},
        {POD_IDENTITY: "a-2"},
    ]


async def test_a_release_is_removed_without_the_facts_of_its_values() -> None:
    helm = Helm()
    with pytest.raises(NotYet, match="pia/autoscaler"):
        await in_cluster(helm).ensure(ACCOUNT, wanted())
    await in_cluster(helm).delete(ACCOUNT, wanted())
    assert helm.removed == [("cluster-autoscaler", "kube-system")]
