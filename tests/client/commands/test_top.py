"""`modelplane top`, over a fleet that is built from manifests."""

import json
from dataclasses import replace

import pytest

from api_types.taints import MAINTENANCE
from client.commands.inspect import top
from fleet_client.placement.live_fleet import LiveFleet
from scheduler import read_policy
from tests.client.conftest import Cli
from tests.client.fleetfiles import Tree
from tests.client.planning.test_live_plan import published, two_sites


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters of two nodes with a replica each, and one with pools of two sizes."""
    small: Tree = published("aa", ("h200", 1), ("spare", 3))
    small["spec"]["taints"] = [MAINTENANCE]

    async def read() -> LiveFleet:
        return two_sites(small)

    monkeypatch.setattr(top, "_read", read)


@pytest.mark.usefixtures("fleet")
def test_clusters_show_the_sum_of_their_pools(cli: Cli) -> None:
    shown = cli("top", "clusters")
    assert [line.split(maxsplit=8) for line in shown.out.splitlines()] == [
        [
            "CLUSTER",
            "UNIT",
            "TOTAL",
            "USED",
            "HELD",
            "FREE",
            "WASTED",
            "IDLE-DEVICES",
            "WHY",
        ],
        [
            "aa",
            "nodes",
            "4",
            "0",
            "0",
            "0",
            "4",
            "0",
            "the cluster is drained or cordoned",
        ],
        ["eu", "nodes", "2", "1", "0", "1", "0", "0", "<none>"],
        ["us", "nodes", "2", "1", "0", "1", "0", "0", "<none>"],
    ]


@pytest.mark.usefixtures("fleet")
def test_pools_and_namespaces_have_a_row_each(cli: Cli) -> None:
    shown = cli("top", "pools", "--no-headers")
    assert [line.split()[:8] for line in shown.out.splitlines()] == [
        ["aa", "h200", "nodes", "1", "0", "0", "0", "1"],
        ["aa", "spare", "nodes", "3", "0", "0", "0", "3"],
        ["eu", "h200", "nodes", "2", "1", "0", "1", "0"],
        ["us", "h200", "nodes", "2", "1", "0", "1", "0"],
    ]
    row = {
        "namespace": "ml",
        "unit": "nodes",
        "replicas": 2,
        "used": 2,
        "held": 0,
        "idleDevices": 0,
    }
    assert json.loads(cli("top", "namespaces", "-o", "json").out) == [row]
    assert json.loads(cli("top", "namespaces", "-n", "other", "-o", "json").out) == []


@pytest.mark.usefixtures("limited")
def test_quotas_have_their_use_and_limits(cli: Cli) -> None:
    shown = cli("top", "quotas")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["NAMESPACE", "POOLS", "NODES", "MAX-NODES", "DEVICES", "MAX-DEVICES"],
        ["ml", "all", "pools", "2", "3", "2", "unlimited"],
        ["other", "all", "pools", "0", "1", "0", "unlimited"],
    ]
    (row,) = json.loads(cli("top", "quotas", "-n", "other", "-o", "json").out)
    assert (row["maxNodes"], row["maxDevices"]) == (1, -1)
    assert cli("top", "quotas", "-n", "none").out == (
        "The policy has no such quotas; `modelplane policy get` prints it\n"
    )


@pytest.mark.usefixtures("limited")
def test_queues_show_the_own_share_and_what_they_borrow(cli: Cli) -> None:
    shown = json.loads(cli("top", "queues", "-o", "json").out)
    assert shown == [
        {
            "cluster": "eu",
            "queue": "gpus",
            "guaranteed": 8,
            "used": 10,
            "borrowed": 2,
            "limit": -1,
            "free": 0,
            "waiting": 3,
            "tenants": "ml",
            "why": "the queue is stopped",
        }
    ]
    assert "unlimited" in cli("top", "queues").out


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters with quotas; the first one has reported an admission queue."""
    found = two_sites()
    quotas = [
        {"namespace": "other", "maxNodes": 1},
        {"namespace": "ml", "maxNodes": 3},
    ]
    found.fleet.set_options(read_policy({"quotas": quotas}))
    queue = {
        "name": "gpus",
        "nominal": 8,
        "used": 10,
        "borrowed": 2,
        "free": 0,
        "pending": 3,
        "tenants": ["ml"],
        "active": False,
    }
    eu = found.clusters["eu"]
    observed = {**eu, "status": {**eu["status"], "capacity": {"queues": [queue]}}}

    async def read() -> LiveFleet:
        return replace(found, clusters={**found.clusters, "eu": observed})

    monkeypatch.setattr(top, "_read", read)
