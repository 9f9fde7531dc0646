"""Settings of the clouds that clusters are created in."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import EKS_SUBNETS_MAX, EKS_SUBNETS_MIN
from api_types.sections.base import Section


class GkeSettings(Section):
    """Clusters on GKE: their networks, and whether the counts of a pool are those of each zone, as GKE counts, or of all together."""

    node_cidr: IPv4Network = IPv4Network("10.0.0.0/24")
    pod_cidr: IPv4Network = IPv4Network("10.1.0.0/16")
    service_cidr: IPv4Network = IPv4Network("10.2.0.0/16")
    count_scope: Literal["zone", "total"] = "zone"


class EksSettings(Section):
    """The network of clusters on EKS, and its public subnets, one per zone; each gets a private one for nodes."""

    vpc_cidr: IPv4Network = IPv4Network("10.0.0.0/16")
    subnet_cidrs: Annotated[tuple[IPv4Network, ...], Field(min_length=EKS_SUBNETS_MIN, max_length=EKS_SUBNETS_MAX)] = tuple(
        IPv4Network(f"10.0.{third}.0/20") for third in (0, 16, 32)
    )
