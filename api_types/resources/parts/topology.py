"""Where the pods of one copy of an engine are, relative to one another, and which of a pod's devices belong together."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.limits import DEVICE_CONSTRAINTS_MAX, REQUESTS_MAX
from api_types.resources.parts.base_types import Flag, Name63, Name253, ResourceModel


class TopologyDomain(ResourceModel):
    """All pods of a copy on nodes with one value of a label, such as one rack."""

    node_label: Annotated[str, Field(min_length=1, max_length=317)]
    """Label of the clusters' nodes; nodes with one value of it are one domain."""
    mode: Literal["Required", "Preferred"] = "Required"
    """Required: pods wait until one domain has room for them. Preferred: they may be spread over several."""
    exclusive: Flag = False
    """True if no two copies may share a domain. Only on clusters without a queueing scheduler, and only with mode Required."""
    topology_name: Name253 | None = None
    """The Topology object that has the label as a level. KAI needs it; Kueue has its own in the ResourceFlavor."""


class DeviceConstraint(ResourceModel):
    """Devices of a pod that must agree in an attribute, such as a GPU and a network card behind one PCIe root."""

    match_attribute: Annotated[str, Field(min_length=1, max_length=96)]
    """Attribute with its domain, such as `resource.kubernetes.io/pcieRoot`; devices without it are not used."""
    requests: Annotated[tuple[Name63, ...], Field(min_length=1, max_length=REQUESTS_MAX)] | None = None
    """Names of device requests of this engine; absent means all of them."""


class ComputeDomain(ResourceModel):
    """Memory that GPUs of several nodes share over NVLink: a ComputeDomain of the NVIDIA DRA driver for the whole engine."""

    channels: Literal["Single", "All"] = "Single"
    """IMEX channels that each pod with devices gets."""


class Topology(ResourceModel):
    """How close together an engine's pods and their devices are."""

    domain: TopologyDomain | None = None
    """Keeps the pods of a copy together. Only for a Leader with Workers."""
    device_constraints: Annotated[tuple[DeviceConstraint, ...], Field(min_length=1, max_length=DEVICE_CONSTRAINTS_MAX)] | None = None
    """Keeps the devices of a pod together, in its claim."""
    compute_domain: ComputeDomain | None = None
    """Shares GPU memory between the nodes of the engine; the cluster must serve ComputeDomain."""
