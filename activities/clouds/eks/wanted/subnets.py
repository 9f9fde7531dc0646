"""The addresses of an EKS cluster's subnets.

A pair is one public and one private subnet of a zone. Existing pairs come first and
never change: a new pool must not move the subnets of others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

# The distance between a public subnet and its private one, in the third octet of the
# address.
_PRIVATE_STEP = 48
_OCTET_MAX = 255
# The prefix lengths that EC2 accepts for a VPC and for a subnet.
_PREFIX_MIN, _PREFIX_MAX = 16, 28
_PREFIXES = f"/{_PREFIX_MIN} to /{_PREFIX_MAX}"


@dataclass(frozen=True)
class SubnetPair:
    zone: str
    public: IPv4Network
    private: IPv4Network

    @property
    def letter(self) -> str:
        return self.zone[-1]


def range_problems(vpc: IPv4Network, public: Sequence[IPv4Network]) -> Iterator[str]:
    """Yield the problems for which EC2 would reject the ranges in the settings."""
    if not _PREFIX_MIN <= vpc.prefixlen <= _PREFIX_MAX:
        yield f"setting eks.vpcCidr {vpc}: a VPC has a prefix of {_PREFIXES}"
    for at, each in enumerate(public):
        if not each.subnet_of(vpc):
            yield f"setting eks.subnetCidrs {each} is not in eks.vpcCidr {vpc}"
        elif not _PREFIX_MIN <= each.prefixlen <= _PREFIX_MAX:
            yield f"setting eks.subnetCidrs {each}: a subnet has a prefix of {_PREFIXES}"
        for other in public[:at]:
            if each.overlaps(other):
                yield f"setting eks.subnetCidrs: {other} and {each} overlap"


def subnet_pairs(
    vpc: IPv4Network,
    configured: Sequence[IPv4Network],
    zones: Sequence[str],
    known: Sequence[SubnetPair],
) -> list[SubnetPair] | None:
    """Return the subnets of each zone, in order, or None if the VPC has no room.

    `known` are the pairs of the first zones. The private subnet is at the default
    distance above the public one. If that range is outside of the VPC or taken, the
    private subnet is the first free range of that size.
    """
    pairs = list(known)
    for zone in zones[len(known) :]:
        used = [*(pair.public for pair in pairs), *(pair.private for pair in pairs)]
        public = next((each for each in configured if not _meets(each, used)), None)
        public = public or _first_free(
            vpc, configured[0].prefixlen, [*used, *configured, *_steps(vpc, configured)]
        )
        if public is None:
            return None
        taken = [*used, *configured, public]
        private = _step(vpc, public)
        if private is None or _meets(private, taken):
            private = _first_free(
                vpc, public.prefixlen, [*taken, *_steps(vpc, configured)]
            ) or _first_free(vpc, public.prefixlen, taken)
        if private is None:
            return None
        pairs.append(SubnetPair(zone, public, private))
    return pairs


def _steps(vpc: IPv4Network, configured: Sequence[IPv4Network]) -> list[IPv4Network]:
    """Return the available default ranges of private subnets."""
    steps = [_step(vpc, each) for each in configured]
    return [each for each in steps if each is not None and not _meets(each, configured)]


def _step(vpc: IPv4Network, public: IPv4Network) -> IPv4Network | None:
    first, second, third, last = public.network_address.packed
    if third + _PRIVATE_STEP > _OCTET_MAX:
        return None
    address = IPv4Address(bytes([first, second, third + _PRIVATE_STEP, last]))
    # A large subnet must begin at a multiple of its size.
    private = IPv4Network((address, public.prefixlen), strict=False)
    return (
        private
        if private.network_address == address and private.subnet_of(vpc)
        else None
    )


def _first_free(
    vpc: IPv4Network, prefix: int, taken: Sequence[IPv4Network]
) -> IPv4Network | None:
    if prefix < vpc.prefixlen:
        return None
    return next(
        (each for each in vpc.subnets(new_prefix=prefix) if not _meets(each, taken)),
        None,
    )


def _meets(network: IPv4Network, others: Sequence[IPv4Network]) -> bool:
    return any(network.overlaps(other) for other in others)
