"""What the platform grants to the pods of engines on the nodes of a class. Tenants cannot ask for any of it."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Advice, MapKeys, Name63, Name253, NonEmpty, ResourceModel, Whole

Capability = Literal["IPC_LOCK", "SYS_NICE", "SYS_PTRACE"]
"""Those that engines need: to pin memory for RDMA, to bind memory to a NUMA node, and to share GPU memory between processes."""

Amount = Annotated[
    str,
    Field(min_length=1, max_length=32),
    Advice(not_a_string='must be a quantity of more than 0, as a string: "64Gi" of memory, "500m" of a processor; got {got}'),
]
"""A Kubernetes quantity; that it is one is checked by rule."""

SeccompType = Literal["RuntimeDefault", "Unconfined", "Localhost"]
NodeTaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class HugePages(ResourceModel):
    """Huge pages of one size, mounted at `/dev/hugepages-<size>`."""

    size: Literal["2Mi", "1Gi"]
    """Size of a page."""
    amount: Amount
    """How much of them a pod gets, such as `4Gi`."""


class PolicyVariable(ResourceModel):
    """A variable for the transports of this hardware, such as NCCL and UCX."""

    name: Name63
    """Name of the variable; one that the engine's owner sets too keeps the owner's value."""
    value: Annotated[str, Field(max_length=256)]
    """Its value."""


class ComputeAmounts(ResourceModel):
    """Processor, memory and scratch space of a container."""

    cpu: Amount | None = None
    """Processors."""
    memory: Amount | None = None
    """Memory, that of `/dev/shm` included."""
    ephemeral_storage: Amount | None = Field(default=None, alias="ephemeral-storage")
    """Scratch space."""


class ComputeResources(ResourceModel):
    """What an engine's container requests, and what it may use at most."""

    requests: ComputeAmounts | None = None
    """Instead of the setting `workloads.engineRequests`, amount by amount."""
    limits: ComputeAmounts | None = None
    """Absent means none."""


class RdmaDevice(ResourceModel):
    """Devices of an RDMA device plugin."""

    resource_name: Name253
    """Extended resource, such as `rdma/hca_shared_devices_a`."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """How many each pod gets."""


class SeccompProfile(ResourceModel):
    """Which system calls a pod may make."""

    type: SeccompType = "RuntimeDefault"
    """Unconfined allows all."""
    localhost_profile: Name253 | None = None
    """Path of the profile on the node; needed for Localhost."""


class NodeToleration(ResourceModel):
    """A taint of nodes of this class that engines tolerate. Nodes with taints that they do not tolerate count as occupied."""

    key: NonEmpty
    """Key of the taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Exists ignores the value."""
    value: Name63 | None = None
    """Needed for Equal."""
    effect: NodeTaintEffect | None = None
    """Absent matches every effect."""


class PodPolicy(ResourceModel):
    """What engine pods on nodes of this class get beside what every engine pod has. A change reaches pods that are made after it."""

    capabilities: Annotated[tuple[Capability, ...], Field(max_length=3)] | None = None
    """Linux capabilities of the engine. Namespaces must allow them: Pod Security `baseline` does not."""
    hugepages: Annotated[tuple[HugePages, ...], Field(max_length=2), MapKeys(("size",), "page size")] | None = None
    """Huge pages of the node."""
    env: Annotated[tuple[PolicyVariable, ...], Field(max_length=32), MapKeys(("name",), "variable")] | None = None
    """Variables in front of those of the engine's owner."""
    resources: ComputeResources | None = None
    """Processor and memory of an engine."""
    rdma: Annotated[tuple[RdmaDevice, ...], Field(max_length=8), MapKeys(("resourceName",), "resource")] | None = None
    """RDMA devices beside those that the engine claims."""
    seccomp: SeccompProfile | None = None
    """Absent means RuntimeDefault."""
    runtime_class_name: Name253 | None = None
    """RuntimeClass of the pods; it must exist on the cluster."""
    shm_size: Amount | None = None
    """Size limit of `/dev/shm`, instead of the setting `workloads.shmSizeLimit`."""
    tolerations: Annotated[tuple[NodeToleration, ...], Field(max_length=16)] | None = None
    """Taints of the nodes that engines tolerate beside those of their devices."""
    service_account_name: Name253 | None = None
    """ServiceAccount of the pods, for cloud identities; it must exist in their namespace. Its token is not mounted."""


def policies_by_pool(pools: Iterable[Mapping[str, Any]], classes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Map each pool whose class grants anything to that, in wire form; `classes` has the specs of the classes that are known."""
    granted = {pool["name"]: classes.get(pool["className"], {}).get("podPolicy") for pool in pools}
    return {name: dict(policy) for name, policy in granted.items() if policy}
