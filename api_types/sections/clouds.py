"""Settings of the clouds that clusters are created in."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import EKS_SUBNETS_MAX, EKS_SUBNETS_MIN
from api_types.sections.base import Section

Wait = Annotated[int, Field(ge=1, le=7 * 24 * 3600)]
"""A time to wait, in seconds."""


class ProvisionSettings(Section):
    """How clusters are created at clouds, and kept as they are wanted. Times are in seconds."""

    installation_id: Annotated[str, Field(max_length=63, pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")] = Field(
        default="",
        description="In the marks of all cloud objects; the same for the whole life of this installation. "
        "Empty: key `id` of Secret `modelplane-system/modelplane-installation`. One of the two is needed to create clusters.",
    )
    drift_interval: Wait = Field(default=600, description="Between two looks at the objects of a cluster, a fifth more or less.")
    quota_retry: Wait = 900
    capacity_retry: Wait = 600
    max_parallel: Annotated[int, Field(ge=1, le=50)] = Field(default=6, description="Objects of one cluster that are worked on at once.")
    pool_drain_wait: Wait = Field(default=1800, description="For how long replicas may keep a pool that was removed from the spec.")
    broken_rebuilds: Annotated[int, Field(ge=0, le=10)] = Field(
        default=1, description="How often in a row an object that ends in a failed state is built again at once."
    )
    audit_rounds: Annotated[int, Field(ge=1, le=100)] = Field(
        default=3, description="How often what is found after a deletion is deleted before it is listed."
    )


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
