"""Settings of the clouds in which the control plane creates clusters."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import EKS_SUBNETS_MAX, EKS_SUBNETS_MIN
from api_types.sections.base import SettingsSection

AccountNames = Annotated[
    tuple[Annotated[str, Field(pattern="^[a-z0-9:.-]{1,100}$")], ...],
    Field(max_length=1000),
]
TokenFiles = Annotated[
    tuple[Annotated[str, Field(pattern="^/", max_length=1000)], ...],
    Field(max_length=100),
]
TokenUrls = Annotated[
    tuple[Annotated[str, Field(pattern="^https?://", max_length=1000)], ...],
    Field(max_length=100),
]

Wait = Annotated[int, Field(ge=1, le=7 * 24 * 3600)]
"""A duration in seconds."""

Zones = Annotated[
    tuple[Annotated[str, Field(pattern="^[a-z0-9-]{1,40}$")], ...],
    Field(max_length=32),
]
"""Names of zones, or ids, which are the same for all accounts."""


class ProvisionSettings(SettingsSection):
    """Creation and drift correction of cloud clusters."""

    installation_id: Annotated[
        str, Field(max_length=63, pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")
    ] = Field(
        default="",
        description=(
            "ID in the names and marks of all cloud objects, constant for the "
            "whole life of this installation. Empty: the key `id` of the Secret "
            "`modelplane-system/modelplane-installation`, which `modelplane "
            "apply` creates when it stores the first cloud credential."
        ),
    )
    drift_interval: Wait = Field(
        default=600,
        description=(
            "Time in seconds between two checks of a cluster's cloud objects, "
            "plus or minus a fifth."
        ),
    )
    quota_retry: Wait = Field(
        default=900,
        description="Time in seconds until the next attempt after a quota error.",
    )
    capacity_retry: Wait = Field(
        default=600,
        description=(
            "Time in seconds until the next request for machines that the cloud "
            "did not have."
        ),
    )
    max_parallel: Annotated[int, Field(ge=1, le=50)] = Field(
        default=6,
        description="Number of concurrent operations on cloud objects of one cluster, "
        "without those on node pools.",
    )
    pool_drain_wait: Wait = Field(
        default=1800,
        description=(
            "Time in seconds for which replicas may keep a node pool that was "
            "removed from the spec."
        ),
    )
    broken_rebuilds: Annotated[int, Field(ge=0, le=10)] = Field(
        default=1,
        description=(
            "Number of consecutive immediate rebuilds of an object that ends in a "
            "failed state."
        ),
    )
    audit_rounds: Annotated[int, Field(ge=1, le=100)] = Field(
        default=3,
        description=(
            "Number of attempts to delete the leftovers of a deletion before they "
            "are listed."
        ),
    )
    worker_identity_accounts: AccountNames = Field(
        default=(),
        description=(
            "AWS account numbers and Google Cloud project IDs in which a cloud "
            "credential may use the worker's own identity. Empty: none."
        ),
    )
    token_files: TokenFiles = Field(
        default=(),
        description=(
            "Files of the worker, as absolute paths, from which a cloud credential "
            "may read a token for web identity or workload identity federation."
        ),
    )
    token_urls: TokenUrls = Field(
        default=(),
        description=(
            "URLs from which a cloud credential may read a token for workload "
            "identity federation. A URL must be the same in the credential, "
            "character by character."
        ),
    )


class GkeSettings(SettingsSection):
    """Networks and node counts of GKE clusters."""

    node_cidr: IPv4Network = Field(
        default=IPv4Network("10.0.0.0/24"),
        description=(
            "Address range of the nodes of a cluster on GKE. All clusters share "
            "their ranges unless the settings differ."
        ),
    )
    pod_cidr: IPv4Network = Field(
        default=IPv4Network("10.1.0.0/16"),
        description="Address range of its pods.",
    )
    service_cidr: IPv4Network = Field(
        default=IPv4Network("10.2.0.0/16"),
        description="Address range of its Services.",
    )
    count_scope: Literal["zone", "total"] = Field(
        default="zone",
        description=(
            "Scope of the node counts of a pool: each `zone`, as in GKE's API, or "
            "the `total` of all its zones."
        ),
    )


class EksSettings(SettingsSection):
    """Networks and zones of EKS clusters."""

    vpc_cidr: IPv4Network = Field(
        default=IPv4Network("10.0.0.0/16"),
        description="Address range of a cluster on EKS.",
    )
    subnet_cidrs: Annotated[
        tuple[IPv4Network, ...],
        Field(min_length=EKS_SUBNETS_MIN, max_length=EKS_SUBNETS_MAX),
    ] = Field(
        default=tuple(IPv4Network(f"10.0.{third}.0/20") for third in (0, 16, 32)),
        description=(
            "Its public subnets, one per zone, 2 to 6. Each is accompanied by a "
            "private subnet of the same size for nodes."
        ),
    )
    zones: Zones = Field(
        default=(),
        description=(
            "Names or ids of the zones for new clusters and pools, such as "
            "`us-east-1a` or `use1-az6`. Empty: all zones that EKS supports."
        ),
    )
    excluded_zones: Zones = Field(
        default=(),
        description=(
            "Names or ids of zones in which nothing new is created. Existing "
            "subnets and pools stay."
        ),
    )
