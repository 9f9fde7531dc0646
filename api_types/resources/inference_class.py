"""InferenceClass: a tested type of node.

It lists the devices of a node, and optionally the parameters to provision it at a
cloud. The scheduler reads only the devices; the other fields are for the creation of
clusters.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts.base_types import (
    Flag,
    Int64,
    Manifest,
    MapKeys,
    Name63,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)
from api_types.resources.parts.pod_policy import ComputeAmounts, PodPolicy
from api_types.resources.status import ResourceStatus

Cloud = Literal["GKE", "EKS", "AKS", "Nebius", "Vultr"]
Claim = Literal["DRA", "Synthetic", "DevicePlugin", "Slot"]

NodeDiskGb = Annotated[Whole, Field(ge=10)]


class Accelerator(ResourceModel):
    """The GPUs of one node, in the cloud's terms."""

    type: Name63
    """GPU type; becomes the `modelplane.ai/gpu` label of the nodes."""
    count: Annotated[Whole, Field(ge=1, le=16)]
    """GPUs per node."""


class GkeNodes(ResourceModel):
    """Parameters to provision such a node on GKE."""

    machine_type: NonEmpty
    """Compute Engine machine type."""
    disk_size_gb: NodeDiskGb = 100
    """Boot disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs; passed on to GKE."""


class EksNodes(ResourceModel):
    """Parameters to provision such a node on EKS."""

    instance_type: NonEmpty
    """EC2 instance type; determines the GPU."""
    disk_size_gb: NodeDiskGb = 100
    """Root disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class AksNodes(ResourceModel):
    """Parameters to provision such a node on AKS."""

    vm_size: NonEmpty
    """Azure VM size; determines the GPU."""
    disk_size_gb: NodeDiskGb = 100
    """OS disk of a node, in GB."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class NebiusNodes(ResourceModel):
    """Parameters to provision such a node on Nebius.

    Platform and preset together determine GPU, vCPU and memory.
    """

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
    """Parameters to provision such a node on Vultr."""

    plan: Name63
    """Plan id; determines the GPU and the disk."""
    accelerator: Accelerator
    """The GPUs, for people and labels."""


class Provisioning(ResourceModel):
    """Parameters to create a pool of such nodes. Blocks of other clouds are ignored."""

    provider: Cloud
    """The block that applies."""
    gke: GkeNodes | None = None
    """Required for GKE."""
    eks: EksNodes | None = None
    """Required for EKS."""
    aks: AksNodes | None = None
    """Required for AKS."""
    nebius: NebiusNodes | None = None
    """Required for Nebius."""
    vultr: VultrNodes | None = None
    """Required for Vultr."""


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
    """One capacity of a device."""

    value: Annotated[str, Field(min_length=1, max_length=32)]
    """Kubernetes quantity: the usable amount that the driver reports."""


class Device(ResourceModel):
    """One kind of device of a node, not one physical device."""

    name: Name63
    """Local name, such as `gpu` or `nic`."""
    claim: Claim = "DRA"
    """How a pod gets it.

    DRA: by a ResourceClaim. DevicePlugin: by an extended resource.

    Slot: the pod claims nothing, and the control plane counts the device, for nodes
    without accelerators.

    Synthetic: it is only matched, and neither claimed nor counted.
    """
    driver: Name253
    """DRA driver; the domain of attribute and capacity names without a domain."""
    device_class_name: Name253 | None = None
    """DeviceClass for claims; required for DRA."""
    resource_name: Name253 | None = None
    """Extended resource to request; required for DevicePlugin."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """Number of these devices per node."""
    attributes: Annotated[dict[str, DeviceAttribute], Field(max_length=32)] | None = (
        None
    )
    """Attributes by name; `domain/name` overrides the driver's domain."""
    capacity: Annotated[dict[str, DeviceCapacity], Field(max_length=32)] | None = None
    """Capacities by name."""


class InferenceClassSpec(ResourceModel):
    """The nodes of this class."""

    refused_fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("resources", "capabilities"),
        "field was removed; describe the hardware of a node in devices[]",
    )

    description: str | None = None
    """Text for people."""
    provisioning: Provisioning | None = None
    """Parameters to create such nodes; absent for pools that already exist."""
    node_resources: ComputeAmounts | None = None
    """CPU, memory and scratch space of one node that pods can request.

    Absent: the requests of podPolicy.resources are not compared with a node.
    """
    pod_policy: PodPolicy | None = None
    """Settings that the platform grants to engine pods on such nodes."""
    devices: Annotated[
        tuple[Device, ...],
        Field(min_length=1, max_length=16),
        MapKeys(("name",), "device"),
    ]
    """The devices of a node, in the order in which requests try them."""


class InferenceClassStatus(ResourceStatus):
    """The users of the class."""

    clusters: tuple[str, ...] = ()
    """Clusters with a pool of this class."""


class InferenceClass(Manifest):
    """A tested type of node."""

    kind: Literal["InferenceClass"] = "InferenceClass"
    """Always InferenceClass."""
    spec: InferenceClassSpec
    """Devices and provisioning."""
    status: InferenceClassStatus | None = None
    """The state that the control plane reports."""
