"""InferenceClass: a tested type of node.

It lists the devices of a node, and optionally how one cloud provisions it. The scheduler reads only the devices; the rest is input for
creating clusters.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Flag, Int64, Manifest, MapKeys, Name63, Name253, NonEmpty, ResourceModel, Whole
from api_types.resources.parts.pod_policy import PodPolicy
from api_types.resources.status import ResourceStatus

Cloud = Literal["GKE", "EKS", "AKS", "Nebius", "Vultr"]
Claim = Literal["DRA", "Synthetic", "DevicePlugin"]

NodeDiskGb = Annotated[Whole, Field(ge=10)]


class Accelerator(ResourceModel):
    """The GPUs of one node, as the cloud calls them."""

    type: Name63
    """GPU type; becomes the `modelplane.ai/gpu` label of the nodes."""
    count: Annotated[Whole, Field(ge=1, le=16)]
    """GPUs per node."""


class GkeNodes(ResourceModel):
    """How GKE provisions such a node."""

    machine_type: NonEmpty
    """Compute Engine machine type."""
    disk_size_gb: NodeDiskGb = 100
    """Boot disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs; passed on to GKE."""


class EksNodes(ResourceModel):
    """How EKS provisions such a node."""

    instance_type: NonEmpty
    """EC2 instance type; decides the GPU."""
    disk_size_gb: NodeDiskGb = 100
    """Root disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class AksNodes(ResourceModel):
    """How AKS provisions such a node."""

    vm_size: NonEmpty
    """Azure VM size; decides the GPU."""
    disk_size_gb: NodeDiskGb = 100
    """OS disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class NebiusNodes(ResourceModel):
    """How Nebius provisions such a node; platform and preset together decide GPU, vCPU and memory."""

    platform: Name63
    """Nebius platform."""
    preset: Name63
    """Size within the platform."""
    drivers_preset: Name63 = "cuda13.0"
    """Driver bundle; the cloud checks its value."""
    disk_size_gb: NodeDiskGb = 100
    """Boot disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class VultrNodes(ResourceModel):
    """How Vultr provisions such a node."""

    plan: Name63
    """Plan id; decides the GPU and the disk."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class Provisioning(ResourceModel):
    """How to create a pool of such nodes. Blocks of other clouds may be present and are ignored."""

    provider: Cloud
    """Which of the blocks applies."""
    gke: GkeNodes | None = None
    """Needed for GKE."""
    eks: EksNodes | None = None
    """Needed for EKS."""
    aks: AksNodes | None = None
    """Needed for AKS."""
    nebius: NebiusNodes | None = None
    """Needed for Nebius."""
    vultr: VultrNodes | None = None
    """Needed for Vultr."""


class DeviceAttribute(ResourceModel):
    """One typed value of a device; exactly one of the four is set."""

    string: Annotated[str, Field(max_length=253)] | None = None
    """Text."""
    version: Annotated[str, Field(max_length=32)] | None = None
    """Semantic version: three parts, no leading `v`."""
    bool_value: Flag | None = Field(default=None, alias="bool")
    """True or false."""
    int_value: Int64 | None = Field(default=None, alias="int")
    """64-bit integer."""


class DeviceCapacity(ResourceModel):
    """How much of something a device has."""

    value: Annotated[str, Field(min_length=1, max_length=32)]
    """Kubernetes quantity: the usable amount that the driver reports."""


class Device(ResourceModel):
    """One kind of device of a node, not one physical device."""

    name: Name63
    """Local name, such as `gpu` or `nic`."""
    claim: Claim = "DRA"
    """How a pod gets it: by ResourceClaim, by device plugin, or only matched and never claimed."""
    driver: Name253
    """DRA driver; the domain of bare attribute and capacity names."""
    device_class_name: Name253 | None = None
    """DeviceClass to claim through; needed for DRA."""
    resource_name: Name253 | None = None
    """Extended resource to request; needed for DevicePlugin."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """How many a node has."""
    attributes: Annotated[dict[str, DeviceAttribute], Field(max_length=32)] | None = None
    """Attributes by name; `domain/name` overrides the driver's domain."""
    capacity: Annotated[dict[str, DeviceCapacity], Field(max_length=32)] | None = None
    """Capacities by name."""


class InferenceClassSpec(ResourceModel):
    """What a node of this class is."""

    refused_fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("resources", "capabilities"), "field was removed; describe the hardware of a node in devices[]"
    )

    description: str | None = None
    """Text for people."""
    provisioning: Provisioning | None = None
    """How to create such nodes; absent for pools that already exist."""
    pod_policy: PodPolicy | None = None
    """What the platform grants to engine pods on such nodes."""
    devices: Annotated[
        tuple[Device, ...],
        Field(min_length=1, max_length=16),
        MapKeys(("name",), "device"),
    ]
    """The devices of a node, in the order in which requests try them."""


class InferenceClassStatus(ResourceStatus):
    """Who uses it."""

    clusters: tuple[str, ...] = ()
    """Clusters with a pool of this class."""


class InferenceClass(Manifest):
    """A tested type of node."""

    kind: Literal["InferenceClass"] = "InferenceClass"
    """Always InferenceClass."""
    spec: InferenceClassSpec
    """Devices and provisioning."""
    status: InferenceClassStatus | None = None
    """What the control plane reports."""
