"""The locality of an engine's pods and of the devices of one pod."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import DEVICE_CONSTRAINTS_MAX, REQUESTS_MAX
from api_types.resources.parts.base_types import Flag, Name63, Name253, ResourceModel


class TopologyDomain(ResourceModel):
    """Places all pods of a copy on nodes with one value of a label, such as one rack."""

    node_label: Annotated[str, Field(min_length=1, max_length=317)]
    """Label of the clusters' nodes; nodes with the same value are one domain."""
    mode: Literal["Required", "Preferred"] = "Required"
    """Required: pods wait for a domain with enough room.

    Preferred: they may be spread.
    """
    exclusive: Flag = False
    """True if no two copies may share a domain.

    Only on clusters without a queueing scheduler, and only with mode Required.
    """
    topology_name: Name253 | None = None
    """The Topology object with the label as a level; required for KAI.

    Kueue has its own in the ResourceFlavor.
    """


class DeviceConstraint(ResourceModel):
    """Devices of a pod that must have the same value of an attribute.

    An example is a GPU and a network card behind one PCIe root.
    """

    match_attribute: Annotated[str, Field(min_length=1, max_length=96)]
    """Attribute with its domain, such as `resource.kubernetes.io/pcieRoot`.

    Devices without the attribute are not used.
    """
    requests: (
        Annotated[tuple[Name63, ...], Field(min_length=1, max_length=REQUESTS_MAX)]
        | None
    ) = None
    """Names of device requests of this engine; absent means all."""


class ComputeDomain(ResourceModel):
    """Memory that GPUs of several nodes share over NVLink.

    The NVIDIA DRA driver provides a ComputeDomain for the whole engine.
    """

    channels: Literal["Single", "All"] = "Single"
    """IMEX channels that each pod with devices gets."""


class Topology(ResourceModel):
    """The locality of an engine's pods and their devices."""

    domain: TopologyDomain | None = None
    """Keeps the pods of a copy together. Only for a Leader with Workers."""
    device_constraints: (
        Annotated[
            tuple[DeviceConstraint, ...],
            Field(min_length=1, max_length=DEVICE_CONSTRAINTS_MAX),
        ]
        | None
    ) = None
    """Keeps the devices of a pod together, in its claim."""
    compute_domain: ComputeDomain | None = None
    """Shares GPU memory between the nodes of the engine.

    The cluster must serve ComputeDomain.
    """
