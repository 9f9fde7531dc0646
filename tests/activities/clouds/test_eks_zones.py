"""The choice of zones of clusters on EKS."""

from dataclasses import replace
from typing import Any

import pytest

from activities.clouds.desired.graph import Fact
from activities.clouds.eks.wanted.inputs import EksFacts
from activities.clouds.eks.wanted.subnets import subnet_pairs
from activities.clouds.eks.wanted.zones import PoolPlacement, chosen_zones
from api_types import labels
from api_types.sections.clouds import EksSettings
from tests.activities.clouds.builders import (
    ROLE,
    an_eks_pool,
    call_of,
    eks,
    object_of,
    reasons,
)

SYSTEM = "m6i.xlarge"
G6 = "g6.2xlarge"
EVERY = ("ra", "rb", "rc", "rd")


def facts(*zones: str, **more: Any) -> EksFacts:
    """Return facts with the zones ra to rd, whose ids are 1 to 4."""
    ids = {zone: f"r-az{'abcdef'.index(zone[-1]) + 1}" for zone in zones or EVERY}
    return replace(EksFacts(zones=tuple(ids), zone_ids=ids), **more)


def offers(**zones: str) -> dict[str, frozenset[str]]:
    """Return the offers of `system` and `g6` by the letters of zones."""
    types = {"system": SYSTEM, "g6": G6}
    return {
        types[name]: frozenset(f"r{letter}" for letter in letters)
        for name, letters in zones.items()
    }


def existing(*zones: str) -> EksFacts:
    """Return the facts of a cluster with subnets in these zones."""
    settings = EksSettings()
    pairs = subnet_pairs(settings.vpc_cidr, settings.subnet_cidrs, zones, ())
    assert pairs is not None
    return facts(subnets=tuple(pairs), chosen=zones)


OPEN = PoolPlacement(G6)
# Name, facts, pools, settings, zones.
CHOICES = [
    ("letters that the account has", facts("ra", "rb", "rd"), [], {}, "abd"),
    ("by name", facts("rc", "ra", "rb"), [], {}, "abc"),
    ("no more than there are", facts("ra", "rb"), [], {}, "ab"),
    ("zones of pools first", facts(), [PoolPlacement(G6, ("rd",))], {}, "dab"),
    (
        "all zones of pools, more than there are ranges",
        facts(),
        [PoolPlacement(G6, ("rd", "rc", "rb", "ra"))],
        {},
        "dcba",
    ),
    (
        "letters if the account is unknown",
        EksFacts(),
        [PoolPlacement(G6, ("rb",))],
        {},
        "bac",
    ),
    (
        "no zone without the system machine",
        facts(offers=offers(system="bcd")),
        [],
        {},
        "bcd",
    ),
    (
        "two zones that offer everything rather than a third that does not",
        facts(offers=offers(system="bd")),
        [],
        {},
        "bd",
    ),
    (
        "EKS needs a second zone",
        facts(offers=offers(system="c")),
        [],
        {},
        "cab",
    ),
    (
        "zones that offer the pool before others",
        facts(offers=offers(system="abcd", g6="cd")),
        [OPEN],
        {},
        "cda",
    ),
    (
        "a zone that offers only the pool, for the pool",
        facts(offers=offers(system="abc", g6="d")),
        [OPEN],
        {},
        "adb",
    ),
    ("no zone without EKS", facts(without_eks=frozenset({"ra"})), [], {}, "bcd"),
    ("no zone without EFS", facts(without_efs=frozenset({"rb"})), [], {}, "acd"),
    (
        "a zone without EKS that a pool names",
        facts(without_eks=frozenset({"ra"})),
        [PoolPlacement(G6, ("ra",))],
        {},
        "abcd",
    ),
    ("no excluded zone", facts(), [], {"excluded_zones": ("ra", "r-az2")}, "cd"),
    ("only the zones of the settings", facts(), [], {"zones": ("rd", "r-az2")}, "bd"),
    ("the same zones again", existing("rb", "rd"), [], {}, "bd"),
    (
        "the same zones, although they offer nothing now",
        replace(existing("rb", "rd"), offers=offers(system="ac")),
        [],
        {},
        "bda",
    ),
    (
        "the same zones, although one is unavailable",
        replace(existing("ra", "rb", "rc"), zones=("ra", "rb", "rd")),
        [],
        {},
        "abc",
    ),
    (
        "the same zones, although one is excluded",
        existing("ra", "rb", "rc"),
        [],
        {"excluded_zones": ("rb",)},
        "abc",
    ),
    (
        "the chosen zones before they have subnets",
        facts(chosen=("rc", "rb"), offers=offers(system="abcd", g6="abcd")),
        [OPEN],
        {},
        "cb",
    ),
    (
        "a further zone for a new pool",
        replace(existing("ra", "rb"), offers=offers(g6="d")),
        [OPEN],
        {},
        "abd",
    ),
    (
        "another zone for one that EKS rejects",
        replace(existing("ra", "rb", "rc"), without_eks=frozenset({"rb"})),
        [],
        {},
        "abcd",
    ),
]


@pytest.mark.parametrize(
    ("known", "pools", "settings", "want"),
    [row[1:] for row in CHOICES],
    ids=[row[0] for row in CHOICES],
)
def test_choices(
    known: EksFacts,
    pools: list[PoolPlacement],
    settings: dict[str, Any],
    want: str,
) -> None:
    found = chosen_zones("r", EksSettings(**settings), pools, known)
    assert found == [f"r{letter}" for letter in want]


THERE = EksFacts(
    zones=("us-east-2a", "us-east-2b", "us-east-2c"),
    principal=ROLE,
    offers={
        SYSTEM: frozenset({"us-east-2a", "us-east-2b"}),
        G6: frozenset({"us-east-2b", "us-east-2c"}),
    },
)


def subnets_of(known: EksFacts, key: str, **pool: Any) -> list[str]:
    """Return the zones of a node group's subnets."""
    made = eks(an_eks_pool(**{"zones": None, **pool}), facts=known)
    found = call_of(made, key, "create_nodegroup")["subnets"]
    return [each.removeprefix("net-subnets-private-us-east-2") for each in found]


def test_a_node_group_is_in_the_zones_that_offer_its_machines() -> None:
    known = replace(THERE, chosen=THERE.zones)
    assert (subnets_of(known, "pool/system"), subnets_of(known, "pool/gpu")) == (
        ["a", "b"],
        ["b", "c"],
    )


def test_an_existing_node_group_keeps_its_zones() -> None:
    groups = {
        "gpu": frozenset({"us-east-2a"}),
        "system": frozenset({"us-east-2c", "us-east-2b"}),
    }
    known = replace(THERE, chosen=THERE.zones, group_zones=groups)
    assert (subnets_of(known, "pool/system"), subnets_of(known, "pool/gpu")) == (
        ["b", "c"],
        ["a"],
    )


def test_services_use_no_zone_that_they_reject() -> None:
    zones = tuple(f"us-east-2{letter}" for letter in "abcde")
    known = replace(
        existing(*zones),
        zones=zones,
        without_eks=frozenset({"us-east-2a"}),
        without_efs=frozenset({"us-east-2b"}),
        principal=ROLE,
    )
    made = eks(an_eks_pool(zones=["us-east-2a"]), facts=known)
    network = call_of(made, "cluster", "create_cluster")["resourcesVpcConfig"]
    mounts = [
        call.parameters["SubnetId"] for call in object_of(made, "efs/mounts").calls
    ]
    (nat,) = object_of(made, "net/nat").calls

    def private(letters: str) -> list[Fact]:
        return [Fact("net/subnets", f"private-us-east-2{letter}") for letter in letters]

    assert [each[-1] for each in network["subnetIds"] if "private" in each] == [*"bcde"]
    assert mounts == private("acde")
    assert nat.parameters["SubnetId"] == Fact("net/subnets", "public-us-east-2b")
    assert subnets_of(known, "pool/system", zones=["us-east-2a"]) == [*"cde"]


def test_the_vpc_keeps_the_first_choice() -> None:
    def tag(known: EksFacts) -> str:
        made = eks(an_eks_pool(zones=["us-east-2c"]), facts=known)
        (given,) = call_of(made, "net/vpc", "create_vpc")["TagSpecifications"]
        found: dict[str, str] = {each["Key"]: each["Value"] for each in given["Tags"]}
        return found[labels.CLOUD_ZONES]

    assert (tag(THERE), tag(replace(THERE, chosen=("us-east-2b", "us-east-2a")))) == (
        "us-east-2c us-east-2a us-east-2b",
        "us-east-2b us-east-2a",
    )


def test_a_new_pool_may_not_name_an_excluded_zone() -> None:
    pool = an_eks_pool(zones=["us-east-2a"])
    settings = EksSettings(excluded_zones=("us-east-2a",))
    groups = {"gpu": frozenset({"us-east-2a"})}
    made = eks(pool, facts=THERE, settings=settings)
    kept = eks(pool, facts=replace(THERE, group_zones=groups), settings=settings)
    assert (reasons(made), [each.text for each in made.refused], reasons(kept)) == (
        [("InvalidInput", "pool gpu")],
        [
            (
                'zone "us-east-2a" is excluded by the settings eks.zones and '
                "eks.excludedZones; use another zone"
            )
        ],
        [],
    )
