"""Which zones a cluster on EKS has subnets in, and with which addresses.

A pair is one public and one private subnet of a zone. Pairs that were created once come first and stay as they are: a new pool must not
move the subnets of others.
"""

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from api_types.limits import EKS_SUBNETS_MAX, EKS_SUBNETS_MIN

# A private subnet is so much above its public one, in the third number of the address.
_PRIVATE_STEP = 48
_OCTET_MAX = 255
# What EC2 takes for a VPC and for a subnet.
_PREFIX_MIN, _PREFIX_MAX = 16, 28


@dataclass(frozen=True)
class SubnetPair:
    """The subnets of one zone."""

    zone: str
    public: IPv4Network
    private: IPv4Network

    @property
    def letter(self) -> str:
        """The last letter of the zone."""
        return self.zone[-1]


def range_problems(vpc: IPv4Network, public: Sequence[IPv4Network]) -> Iterator[str]:
    """Say what EC2 would refuse of the ranges in the settings."""
    if not _PREFIX_MIN <= vpc.prefixlen <= _PREFIX_MAX:
        yield f"setting eks.vpcCidr {vpc}: a VPC has a prefix of /{_PREFIX_MIN} to /{_PREFIX_MAX}"
    for at, each in enumerate(public):
        if not each.subnet_of(vpc):
            yield f"setting eks.subnetCidrs {each} is not in eks.vpcCidr {vpc}"
        elif not _PREFIX_MIN <= each.prefixlen <= _PREFIX_MAX:
            yield f"setting eks.subnetCidrs {each}: a subnet has a prefix of /{_PREFIX_MIN} to /{_PREFIX_MAX}"
        for other in public[:at]:
            if each.overlaps(other):
                yield f"setting eks.subnetCidrs: {other} and {each} overlap"


def zones_for(region: str, usable: Sequence[str], named: Sequence[str], known: Sequence[SubnetPair], count: int) -> list[str]:
    """Give the zones of a cluster: those it has, those that pools name, then others by name, at least `count` where there are so many.

    `usable` are the zones of the region for this account; without them its first letters are taken. May be more than a cluster can have.
    """
    candidates = sorted(usable) or [f"{region}{letter}" for letter in string.ascii_lowercase[:EKS_SUBNETS_MAX]]
    needed = list(dict.fromkeys([*(pair.zone for pair in known), *named]))
    others = [zone for zone in candidates if zone not in needed]
    return needed + others[: max(0, count - len(needed))]


def subnet_pairs(
    vpc: IPv4Network, configured: Sequence[IPv4Network], zones: Sequence[str], known: Sequence[SubnetPair]
) -> list[SubnetPair] | None:
    """Give the subnets of each zone, in order; None where the VPC has no room. `known` are the pairs of the first zones.

    The private one has the place above the public one that it has by default, unless that is outside of the VPC or taken; then it is the
    first free range of its size.
    """
    pairs = list(known)
    for zone in zones[len(known) :]:
        used = [network for pair in pairs for network in (pair.public, pair.private)]
        public = next((each for each in configured if not _meets(each, used)), None)
        public = public or _first_free(vpc, configured[0].prefixlen, [*used, *configured, *_steps(vpc, configured)])
        if public is None:
            return None
        taken = [*used, *configured, public]
        private = _step(vpc, public)
        if private is None or _meets(private, taken):
            private = _first_free(vpc, public.prefixlen, [*taken, *_steps(vpc, configured)]) or _first_free(vpc, public.prefixlen, taken)
        if private is None:
            return None
        pairs.append(SubnetPair(zone, public, private))
    return pairs


def zone_count_problem(zones: Sequence[str]) -> str:
    """Say that a cluster has too many or too few zones; empty if it has neither."""
    if len(zones) > EKS_SUBNETS_MAX:
        return f"node pools name {len(zones)} zones; a cluster has subnets in at most {EKS_SUBNETS_MAX}"
    if len(zones) < EKS_SUBNETS_MIN:
        return f"the region has {len(zones)} usable zones; EKS needs {EKS_SUBNETS_MIN}"
    return ""


def _steps(vpc: IPv4Network, configured: Sequence[IPv4Network]) -> list[IPv4Network]:
    """Give the default places of private subnets that can be had."""
    return [private for each in configured if (private := _step(vpc, each)) is not None and not _meets(private, configured)]


def _step(vpc: IPv4Network, public: IPv4Network) -> IPv4Network | None:
    first, second, third, last = public.network_address.packed
    if third + _PRIVATE_STEP > _OCTET_MAX:
        return None
    address = IPv4Address(bytes([first, second, third + _PRIVATE_STEP, last]))
    # A large subnet may begin only at every so many addresses.
    private = IPv4Network((address, public.prefixlen), strict=False)
    return private if private.network_address == address and private.subnet_of(vpc) else None


def _first_free(vpc: IPv4Network, prefix: int, taken: Sequence[IPv4Network]) -> IPv4Network | None:
    if prefix < vpc.prefixlen:
        return None
    return next((each for each in vpc.subnets(new_prefix=prefix) if not _meets(each, taken)), None)


def _meets(network: IPv4Network, others: Sequence[IPv4Network]) -> bool:
    return any(network.overlaps(other) for other in others)
