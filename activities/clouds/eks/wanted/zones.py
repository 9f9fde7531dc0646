"""The choice of the zones of an EKS cluster.

Names of zones differ between accounts, and ids do not, so facts about zones are about
ids. The choice is made once: a tag of the VPC stores it, and zones with subnets stay.
"""

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from activities.clouds.eks.wanted.inputs import EksFacts
from activities.clouds.eks.wanted.node_groups import SYSTEM_MACHINE
from api_types.limits import EKS_SUBNETS_MAX, EKS_SUBNETS_MIN
from api_types.sections.clouds import EksSettings


@dataclass(frozen=True)
class PoolPlacement:
    """The type of a pool's machines, and the zones that its spec names."""

    machine: str
    zones: Sequence[str] = ()


def chosen_zones(
    region: str,
    settings: EksSettings,
    pools: Sequence[PoolPlacement],
    facts: EksFacts,
) -> list[str]:
    """Return the zones of a cluster.

    Zones with subnets come first, then the zones of an earlier choice, then the zones
    of pools. A pool that names no zone gets a zone that offers its machines. Further
    zones offer the machines of the system pool, and of as many pools as possible. They
    are added until as many zones can contain the control plane as the settings have
    subnets. If the zones of the account are unknown, the first letters are assumed.
    """
    free = candidates(region, settings, facts)
    zones = [pair.zone for pair in facts.subnets]
    zones += [zone for zone in facts.chosen if zone in free]
    for pool in pools:
        zones += pool.zones
    zones = list(dict.fromkeys(zones))
    open_pools = [pool.machine for pool in pools if not pool.zones]
    types = [SYSTEM_MACHINE, *open_pools]

    def rank(zone: str) -> tuple[int, str]:
        return sum(not facts.is_offered(each, zone) for each in types), zone

    for machine in types:
        offering = [zone for zone in free if facts.is_offered(machine, zone)]
        if offering and not set(offering) & set(zones):
            zones.append(min(offering, key=rank))
    others = sorted((zone for zone in free if zone not in zones), key=rank)
    suited = [zone for zone in others if facts.is_offered(SYSTEM_MACHINE, zone)]
    # Zones that are unavailable or excluded now are not replaced in a cluster.
    refused = facts.without_eks | facts.without_efs
    usable = len([zone for zone in zones if zone not in refused])
    # A cluster keeps its number of zones, although the machine types may not be read
    # again.
    before = len(facts.chosen) or len(facts.subnets) or len(settings.subnet_cidrs)
    spare = max(0, min(before, len(settings.subnet_cidrs)) - usable)
    if usable + len(suited) < EKS_SUBNETS_MIN:
        return zones + others[:spare]
    return zones + suited[:spare]


def candidates(region: str, settings: EksSettings, facts: EksFacts) -> list[str]:
    """Return the zones that may be chosen, by name."""
    every = sorted(facts.zones) or [
        f"{region}{letter}" for letter in string.ascii_lowercase[:EKS_SUBNETS_MAX]
    ]
    return [zone for zone in every if facts.is_free(zone, settings)]


def zone_count_problem(zones: Sequence[str], facts: EksFacts) -> str:
    """Return a problem if a cluster has too many or too few zones, else ""."""
    if len(zones) > EKS_SUBNETS_MAX:
        return (
            f"node pools name {len(zones)} zones; a cluster has subnets in at most "
            f"{EKS_SUBNETS_MAX}"
        )
    usable = [zone for zone in zones if zone not in facts.without_eks]
    if len(usable) >= EKS_SUBNETS_MIN:
        return ""
    there = f" ({', '.join(usable)})" if usable else ""
    return (
        f"the cluster has {len(usable)} usable zones{there}; EKS needs {EKS_SUBNETS_MIN}: "
        "change the settings eks.zones and eks.excludedZones, the machine types of pools, "
        "or the region"
    )


def excluded_problems(
    settings: EksSettings, zones: Sequence[str], facts: EksFacts
) -> Iterator[str]:
    """Reject zones of a new pool that the settings exclude."""
    for zone in zones:
        if facts.is_excluded(zone, settings):
            yield (
                f'zone "{zone}" is excluded by the settings eks.zones and '
                "eks.excludedZones; use another zone"
            )
