"""The bill of a planned cluster."""

import re
from typing import Any

import pytest

from activities.clouds.desired.plan import Desired
from activities.clouds.eks.wanted.inputs import EksFacts
from client.planning.cloud_costs import costs_of
from client.planning.list_prices import _PRICES, price_of
from tests.activities.clouds.builders import (
    BLOCK,
    ROLE,
    a_pool,
    an_eks_pool,
    eks,
    gke,
)

VIRGINIA = EksFacts(zones=("us-east-1a", "us-east-1b", "us-east-1c"), principal=ROLE)


def bill(provider: str, region: str, desired: Desired, **prices: int) -> dict[str, Any]:
    """Return the costs. `prices` are thousandths per hour by machine type."""
    given = {
        (region, machine.replace("_", ".")): milli for machine, milli in prices.items()
    }
    return costs_of(provider, region, desired.objects, given)


def lines(costs: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return each item with its object, counts, and costs per hour."""
    return [
        (
            each["item"],
            each["object"],
            (each["start"], each["most"]),
            each["perHour"] and (each["perHour"]["start"], each["perHour"]["most"]),
        )
        for each in costs["items"]
    ]


def test_the_bill_of_a_cluster_on_eks() -> None:
    pools = (
        an_eks_pool(zones=["us-east-1a"], minNodeCount=1, maxNodeCount=4),
        an_eks_pool(
            "block",
            className="p5en",
            zones=["us-east-1a"],
            nodeCount=2,
            capacityBlock={"capacityReservationId": BLOCK},
        ),
    )
    costs = bill("EKS", "us-east-1", eks(*pools, facts=VIRGINIA, region="us-east-1"))
    assert lines(costs) == [
        ("public address", "net/eip", (1, 1), ("0.005", "0.005")),
        ("NAT gateway", "net/nat", (1, 1), ("0.045", "0.045")),
        ("control plane", "cluster", (1, 1), ("0.100", "0.100")),
        ("m6i.xlarge", "pool/system", (1, 2), ("0.192", "0.384")),
        ("g6.2xlarge", "pool/gpu", (1, 4), ("0.978", "3.910")),
        ("p5en.48xlarge in a capacity block", "pool/block", (2, 2), ("0.000", "0.000")),
        ("load balancer", "gateway", (1, 1), ("0.025", "0.025")),
    ]
    assert {key: costs[key] for key in ("perHour", "perMonth", "unknown", "usage")} == {
        "perHour": {"start": "1.345", "most": "4.469"},
        "perMonth": {"start": "981.558", "most": "3262.662"},
        "unknown": [],
        "usage": [
            "files of caches on EFS, without a minimum size: 0.30 per GiB and month"
        ],
    }
    assert "disks of nodes" in costs["leftOut"]


def test_the_bill_of_a_cluster_on_gke() -> None:
    costs = bill(
        "GKE", "us-central1", gke(a_pool(zones=["us-central1-a"]), region="us-central1")
    )
    assert lines(costs) == [
        ("control plane", "cluster", (1, 1), ("0.100", "0.100")),
        ("e2-standard-4", "cluster", (3, 6), ("0.402", "0.804")),
        ("g2-standard-8", "pool/gpu", (1, 1), ("0.854", "0.854")),
        ("load balancer", "gateway", (1, 1), ("0.025", "0.025")),
    ]
    assert costs["usage"] == [
        (
            "each cache has a Filestore instance of at least 1024 GiB: 0.45 per GiB and "
            "month, so at least 460.80 per month"
        )
    ]


def test_an_unknown_price_is_not_guessed_from_another_region() -> None:
    costs = bill("EKS", "us-east-2", eks(an_eks_pool(), an_eks_pool("b")))
    assert [each for each in lines(costs) if each[3] is None] == [
        ("m6i.xlarge", "pool/system", (1, 2), None),
        ("g6.2xlarge", "pool/gpu", (1, 1), None),
        ("g6.2xlarge", "pool/b", (1, 1), None),
        ("load balancer", "gateway", (1, 1), None),
    ]
    assert (costs["perHour"], costs["unknown"], costs["usage"]) == (
        {"start": "0.150", "most": "0.150"},
        [
            "m6i.xlarge in us-east-2",
            "g6.2xlarge in us-east-2",
            "load balancer in us-east-2",
        ],
        ["files of caches on EFS, without a minimum size: an unknown price"],
    )


def test_prices_of_a_file_come_first() -> None:
    desired = eks(an_eks_pool(zones=["us-east-1a"]), facts=VIRGINIA, region="us-east-1")
    costs = bill("EKS", "us-east-1", desired, g6_2xlarge=500, m6i_xlarge=0)
    assert [
        (each["object"], each["perHour"]["start"], each["source"])
        for each in costs["items"]
        if each["object"].startswith("pool/")
    ] == [
        ("pool/system", "0.000", "the file of --prices"),
        ("pool/gpu", "0.500", "the file of --prices"),
    ]


def test_prices_of_nodes_count_all_zones() -> None:
    pool = a_pool(
        zones=["us-central1-a", "us-central1-b"], minNodeCount=1, maxNodeCount=2
    )
    costs = bill("GKE", "us-central1", gke(pool, region="us-central1"))
    assert lines(costs)[2] == ("g2-standard-8", "pool/gpu", (2, 4), ("1.707", "3.414"))


def test_a_cluster_without_objects_costs_nothing() -> None:
    assert costs_of("AKS", "", (), None) == {
        "items": [],
        "perHour": {"start": "0.000", "most": "0.000"},
        "perMonth": {"start": "0.000", "most": "0.000"},
        "unknown": [],
        "usage": [],
        "leftOut": [],
    }


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1"])
def test_prices_for_any_region_do_not_apply_to_other_partitions(region: str) -> None:
    assert (
        price_of("EKS", "control plane", region),
        price_of("EKS", "m6i.xlarge", region),
    ) == (
        None,
        None,
    )


def test_every_price_names_a_page_and_a_date() -> None:
    wrong = [
        key
        for key, price in _PRICES.items()
        if not price.source.startswith("https://")
        or not re.fullmatch(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", price.dated)
        or price.usd <= 0
    ]
    assert (wrong, len(_PRICES) > 50) == ([], True)
