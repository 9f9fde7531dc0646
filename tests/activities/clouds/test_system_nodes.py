"""A cluster is Ready when its API server has a Ready node of the system pool."""

from typing import Any, cast

import pytest

from activities.clients.helm.port import HelmPool
from activities.clouds.desired.owner import owner_at
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.handler import ObjectWork, State
from activities.cluster_objects.cluster_api import (
    ClusterPool,
    GroupVersionKind,
    ObjectList,
    Selection,
)
from api_types.errors import NotYet
from api_types.messages.clouds import CloudAccount
from tests.activities.clouds.builders import (
    INSTALLATION,
    TOKEN,
    UID,
    a_node,
    a_pool,
    an_eks_pool,
    eks,
    gke,
    object_of,
)

ACCOUNT = CloudAccount(
    provider="GKE",
    cluster="prod",
    cluster_uid=UID,
    secret="s",  # noqa: S106
    region="r",
    installation=INSTALLATION,
)
NODES = object_of(gke(a_pool()), "nodes/system")
WANTED = ObjectWork(owner_at(ACCOUNT), NODES, {}, TOKEN)


class Api:
    """An API server with these nodes."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes = list(nodes)
        self.asked: list[Selection] = []

    async def at(self, connection: Any) -> "Api":
        assert connection.cloud == ACCOUNT
        return self

    async def list(self, selection: Selection) -> ObjectList:
        self.asked.append(selection)
        return ObjectList(self.nodes, "1")


def of(api: Api) -> InCluster:
    return InCluster(cast("ClusterPool", api), cast("HelmPool", None))


NONE_READY: list[tuple[str, list[dict[str, Any]]]] = [
    ("none", []),
    ("one that never reported", [{"metadata": {"name": "a"}}]),
    (
        "two that do not report any more",
        [a_node("a", ready=False), a_node("b", ready=False)],
    ),
]


@pytest.mark.parametrize(
    "nodes", [row[1] for row in NONE_READY], ids=[row[0] for row in NONE_READY]
)
async def test_without_a_ready_node_it_is_waited_for(
    nodes: list[dict[str, Any]],
) -> None:
    api = Api(*nodes)
    with pytest.raises(
        NotYet, match=f"none of {len(nodes)} nodes of pool system is Ready"
    ):
        await of(api).ensure(ACCOUNT, WANTED)
    found = await of(api).look(ACCOUNT, WANTED)
    assert (found.state, found.reason) == (
        State.DIFFERS,
        f"none of {len(nodes)} nodes of pool system is Ready",
    )
    assert set(api.asked) == {
        Selection(GroupVersionKind("v1", "Node"), labels="modelplane.ai/pool=system")
    }


async def test_one_ready_node_is_enough() -> None:
    api = Api(a_node("a", ready=False), a_node("b"))
    for found in (
        await of(api).ensure(ACCOUNT, WANTED),
        await of(api).look(ACCOUNT, WANTED),
    ):
        assert (found.state, found.id) == (State.READY, "system")


def test_nodes_are_checked_when_their_pool_exists_and_the_api_server_responds() -> None:
    assert NODES.needs == ("conn",)
    assert object_of(eks(an_eks_pool()), "nodes/system").needs == (
        "conn",
        "pool/system",
    )


async def test_deleting_the_system_nodes_object_deletes_nothing() -> None:
    assert (await of(Api(a_node("a"))).delete(ACCOUNT, WANTED)).state is State.ABSENT
