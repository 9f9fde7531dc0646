"""Zones and subnets of clusters on EKS."""

from ipaddress import IPv4Network

import pytest

from activities.clouds.eks.wanted.inputs import EksFacts
from activities.clouds.eks.wanted.subnets import SubnetPair, subnet_pairs
from api_types.sections.clouds import EksSettings
from tests.activities.clouds.builders import (
    ROLE,
    an_eks_pool,
    call_of,
    eks,
    keys,
    object_of,
    reasons,
    warned,
)
from tests.random_cases import cases, generator

VPC = IPv4Network("10.0.0.0/16")
DEFAULT = EksSettings().subnet_cidrs


def blocks(*texts: str) -> tuple[IPv4Network, ...]:
    return tuple(IPv4Network(text) for text in texts)


def pairs_of(
    configured: tuple[IPv4Network, ...],
    zones: list[str],
    known: tuple[SubnetPair, ...] = (),
) -> list[SubnetPair]:
    found = subnet_pairs(VPC, configured, zones, known)
    assert found is not None
    return found


def test_private_subnets_are_48_above_the_public_ones() -> None:
    found = pairs_of(DEFAULT, ["a", "b", "c"])
    assert [str(pair.public) for pair in found] == [
        "10.0.0.0/20",
        "10.0.16.0/20",
        "10.0.32.0/20",
    ]
    assert [str(pair.private) for pair in found] == [
        "10.0.48.0/20",
        "10.0.64.0/20",
        "10.0.80.0/20",
    ]


FOUR = blocks("10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20", "10.0.48.0/20")


def test_with_four_blocks_the_private_ones_meet_no_public_one() -> None:
    found = pairs_of(FOUR, ["a", "b", "c", "d"])
    assert [str(pair.public) for pair in found] == [str(block) for block in FOUR]
    assert [str(pair.private) for pair in found] == [
        "10.0.112.0/20",
        "10.0.64.0/20",
        "10.0.80.0/20",
        "10.0.96.0/20",
    ]


def test_chosen_ranges_stay_when_a_zone_is_added() -> None:
    first = pairs_of(FOUR, ["a", "b", "c", "d"])
    again = pairs_of(FOUR, ["a", "b", "c", "d", "e"], tuple(first))
    assert again[:4] == first
    assert not any(
        again[4].public.overlaps(each) or again[4].private.overlaps(each)
        for pair in first
        for each in (pair.public, pair.private)
    )


def test_a_block_above_octet_207_has_its_private_one_elsewhere() -> None:
    (pair,) = pairs_of(blocks("10.0.208.0/20"), ["a"])
    assert str(pair.private) == "10.0.0.0/20"


@pytest.mark.random
def test_subnets_of_random_settings_are_in_the_vpc_and_never_overlap() -> None:
    source = generator()
    for _ in range(cases(200)):
        prefix = source.randint(20, 24)
        configured = tuple(
            source.sample(list(VPC.subnets(new_prefix=prefix)), source.randint(2, 6))
        )
        zones = [f"us-east-2{letter}" for letter in "abcdef"[: source.randint(2, 6)]]
        found = pairs_of(configured, zones)
        every = [network for pair in found for network in (pair.public, pair.private)]
        assert [pair.zone for pair in found] == zones
        assert all(each.subnet_of(VPC) and each.prefixlen == prefix for each in every)
        assert not any(
            one.overlaps(other) for at, one in enumerate(every) for other in every[:at]
        )
        assert pairs_of(configured, zones, tuple(found[:2])) == found


def test_a_vpc_without_room_is_refused() -> None:
    settings = EksSettings(
        vpc_cidr=IPv4Network("10.0.0.0/18"),
        subnet_cidrs=blocks("10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"),
    )
    made = eks(settings=settings)
    assert [problem.text for problem in made.refused] == [
        "setting eks.vpcCidr 10.0.0.0/18 has no room for the private subnets of 3 zones"
    ]
    assert made.objects == ()


SETTINGS = [
    (
        "outside",
        "10.0.0.0/16",
        ("10.1.0.0/20", "10.0.0.0/20"),
        "setting eks.subnetCidrs 10.1.0.0/20 is not in eks.vpcCidr 10.0.0.0/16",
    ),
    (
        "overlap",
        "10.0.0.0/16",
        ("10.0.0.0/20", "10.0.8.0/21"),
        "setting eks.subnetCidrs: 10.0.0.0/20 and 10.0.8.0/21 overlap",
    ),
    (
        "large",
        "10.0.0.0/8",
        ("10.0.0.0/20", "10.0.16.0/20"),
        "setting eks.vpcCidr 10.0.0.0/8: a VPC has a prefix of /16 to /28",
    ),
    (
        "small",
        "10.0.0.0/16",
        ("10.0.0.0/29", "10.0.16.0/20"),
        "setting eks.subnetCidrs 10.0.0.0/29: a subnet has a prefix of /16 to /28",
    ),
]


@pytest.mark.parametrize(
    ("vpc", "subnets", "text"),
    [row[1:] for row in SETTINGS],
    ids=[row[0] for row in SETTINGS],
)
def test_ranges_that_ec2_would_refuse_are_refused(
    vpc: str, subnets: tuple[str, ...], text: str
) -> None:
    made = eks(
        settings=EksSettings(vpc_cidr=IPv4Network(vpc), subnet_cidrs=blocks(*subnets))
    )
    assert ([problem.text for problem in made.refused], made.objects) == ([text], ())


def test_the_third_subnet_is_in_the_third_usable_zone() -> None:
    made = eks(
        facts=EksFacts(zones=("us-east-2a", "us-east-2b", "us-east-2d"), principal=ROLE)
    )
    zones = [
        call.parameters["AvailabilityZone"]
        for call in object_of(made, "net/subnets").calls
        if call.operation == "create_subnet"
    ]
    assert zones == ["us-east-2a"] * 2 + ["us-east-2b"] * 2 + ["us-east-2d"] * 2


def test_the_groups_of_a_pool_in_two_zones_are_in_the_private_subnets_of_these() -> (
    None
):
    made = eks(an_eks_pool(zones=["us-east-2a", "us-east-2c"]))
    assert call_of(made, "pool/gpu", "create_nodegroup")["subnets"] == [
        "net-subnets-private-us-east-2a",
        "net-subnets-private-us-east-2c",
    ]
    assert (
        len(
            call_of(made, "cluster", "create_cluster")["resourcesVpcConfig"][
                "subnetIds"
            ]
        )
        == 6
    )
    assert call_of(made, "pool/system", "create_nodegroup")["subnets"] == [
        "net-subnets-private-us-east-2a",
        "net-subnets-private-us-east-2c",
        "net-subnets-private-us-east-2b",
    ]


def test_a_pool_without_zones_is_in_all_private_subnets() -> None:
    assert (
        len(
            call_of(eks(an_eks_pool(zones=None)), "pool/gpu", "create_nodegroup")[
                "subnets"
            ]
        )
        == 3
    )


def test_a_zone_that_the_account_cannot_use_is_refused_and_nothing_is_created() -> None:
    made = eks(
        an_eks_pool(zones=["us-east-2e"]), an_eks_pool("other", zones=["us-west-1a"])
    )
    assert reasons(made) == [
        ("InvalidInput", "pool gpu"),
        ("InvalidInput", "pool other"),
    ]
    assert [problem.text for problem in made.refused] == [
        (
            'zone "us-east-2e" is not available to this account; its zones '
            "are us-east-2a, us-east-2b, us-east-2c"
        ),
        'zone "us-west-1a" is not in region us-east-2, whose zones are us-east-2a and so on',
    ]
    assert keys(made) == []


def test_more_zones_than_a_cluster_has_subnets_in_are_refused() -> None:
    pools = [
        an_eks_pool(f"p{letter}", zones=[f"us-east-2{letter}"]) for letter in "abcdefg"
    ]
    made = eks(*pools, facts=EksFacts())
    assert [problem.text for problem in made.refused] == [
        "node pools name 7 zones; a cluster has subnets in at most 6"
    ]


def test_eks_needs_two_zones() -> None:
    assert [
        problem.text for problem in eks(facts=EksFacts(zones=("us-east-2a",))).refused
    ] == [
        (
            "the cluster has 1 usable zones (us-east-2a); EKS needs 2: change the settings "
            "eks.zones and eks.excludedZones, the machine types of pools, or the region"
        )
    ]


def test_assumed_zones_are_a_warning() -> None:
    made = eks(an_eks_pool(zones=["us-east-2b"]), facts=EksFacts())
    assert warned(made) == [("ZonesAssumed", "")]
    assert "us-east-2a, us-east-2c assumed" in made.warnings[0].text
    assert warned(eks(an_eks_pool())) == []


def test_existing_subnets_stay_when_a_pool_names_another_zone() -> None:
    there = pairs_of(DEFAULT, ["us-east-2a", "us-east-2b", "us-east-2c"])
    made = eks(
        an_eks_pool(zones=["us-east-2f"]),
        facts=EksFacts(subnets=tuple(there), principal=ROLE),
    )
    created = [
        call.parameters
        for call in object_of(made, "net/subnets").calls
        if call.operation == "create_subnet"
    ]
    found = [
        (str(each["AvailabilityZone"]), str(each["CidrBlock"])) for each in created
    ]
    assert found[:6] == [
        (pair.zone, str(network))
        for pair in there
        for network in (pair.public, pair.private)
    ]
    assert [zone for zone, _ in found[6:]] == ["us-east-2f"] * 2
    assert made.warnings == ()
