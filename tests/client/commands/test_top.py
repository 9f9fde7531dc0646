"""`modelplane top`, over a fleet that is built from manifests."""

import json

import pytest

from api_types.taints import MAINTENANCE
from client.commands.inspect import top
from client.planning.live_fleet import LiveFleet
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
