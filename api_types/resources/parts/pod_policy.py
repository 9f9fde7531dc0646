"""Settings that the platform grants to engine pods on nodes of a class.

Tenants cannot request any of them.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from api_types.resources.parts.base_types import (
    Advice,
    MapKeys,
    Name63,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)

Capability = Literal["IPC_LOCK", "SYS_NICE", "SYS_PTRACE"]
"""Capabilities that engines need.

They pin memory for RDMA, bind memory to a NUMA node, and share GPU memory between
processes.
"""

Amount = Annotated[
    str,
    Field(min_length=1, max_length=32),
    Advice(
        not_a_string=(
            'must be a quantity of more than 0, as a string: "64Gi" of memory, '
            '"500m" of CPU; got {got}'
        )
    ),
]
"""A Kubernetes quantity. A rule checks the syntax."""

SeccompType = Literal["RuntimeDefault", "Unconfined", "Localhost"]
NodeTaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class HugePages(ResourceModel):
    """Huge pages of one size, mounted at `/dev/hugepages-<size>`."""

    size: Literal["2Mi", "1Gi"]
    """Size of a page."""
    amount: Amount
    """Amount per pod, such as `4Gi`."""


class PolicyVariable(ResourceModel):
    """An environment variable for transports such as NCCL and UCX."""

    name: Name63
    """Name of the variable; a value of the engine's owner has precedence."""
    value: Annotated[str, Field(max_length=256)]
    """Its value."""


class ComputeAmounts(ResourceModel):
    """CPU, memory and scratch space of a container."""

    cpu: Amount | None = None
    """CPUs."""
    memory: Amount | None = None
    """Memory, including `/dev/shm`."""
    ephemeral_storage: Amount | None = Field(default=None, alias="ephemeral-storage")
    """Scratch space."""


class ComputeResources(ResourceModel):
    """Requests and limits of an engine's container, per device that the pod claims."""

    device: Name253 | None = None
    """`deviceClassName` or `resourceName` of the counted devices.

    Absent: the first device of the class. A pod without such devices counts as one.
    """
    requests: ComputeAmounts | None = None
    """Amounts that replace those in the setting `workloads.engineRequests`."""
    limits: ComputeAmounts | None = None
    """Absent means none."""


class RdmaDevice(ResourceModel):
    """Devices of an RDMA device plugin."""

    resource_name: Name253
    """Extended resource, such as `rdma/hca_shared_devices_a`."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """Number per pod."""


class SeccompProfile(ResourceModel):
    """The permitted system calls of a pod."""

    type: SeccompType = "RuntimeDefault"
    """Unconfined allows all."""
    localhost_profile: Name253 | None = None
    """Path of the profile on the node; required for Localhost."""


class NodeToleration(ResourceModel):
    """A node taint that engine pods tolerate.

    Nodes with other taints count as occupied.
    """

    key: NonEmpty
    """Key of the taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Exists ignores the value."""
    value: Name63 | None = None
    """Required for Equal."""
    effect: NodeTaintEffect | None = None
    """Absent matches every effect."""


class PodPolicy(ResourceModel):
    """Settings of engine pods on nodes of this class, in addition to the defaults.

    A change applies to new pods.
    """

    capabilities: Annotated[tuple[Capability, ...], Field(max_length=3)] | None = None
    """Linux capabilities of the engine. Pod Security `baseline` does not allow them."""
    hugepages: (
        Annotated[
            tuple[HugePages, ...], Field(max_length=2), MapKeys(("size",), "page size")
        ]
        | None
    ) = None
    """Huge pages of the node."""
    env: (
        Annotated[
            tuple[PolicyVariable, ...],
            Field(max_length=32),
            MapKeys(("name",), "variable"),
        ]
        | None
    ) = None
    """Environment variables, placed before the variables of the engine's owner."""
    resources: ComputeResources | None = None
    """CPU and memory of an engine."""
    rdma: (
        Annotated[
            tuple[RdmaDevice, ...],
            Field(max_length=8),
            MapKeys(("resourceName",), "resource"),
        ]
        | None
    ) = None
    """RDMA devices, in addition to the claimed devices."""
    seccomp: SeccompProfile | None = None
    """Absent means RuntimeDefault."""
    runtime_class_name: Name253 | None = None
    """RuntimeClass of the pods; it must exist on the cluster."""
    shm_size: Amount | None = None
    """Size limit of `/dev/shm`, instead of the setting `workloads.shmSizeLimit`."""
    tolerations: Annotated[tuple[NodeToleration, ...], Field(max_length=16)] | None = (
        None
    )
    """Node taints that engines tolerate, in addition to the taints of their devices."""
    service_account_name: Name253 | None = None
    """ServiceAccount of the pods in their namespace, for cloud identities.

    It must exist. Its token is not mounted.
    """


def policies_by_pool(
    pools: Iterable[Mapping[str, Any]], classes: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Map each pool to the `podPolicy` of its class, in wire form, if it has one.

    `classes` are the specs of the known classes. `resources.device` is filled in. It
    stays absent if the first device of a class is a slot.
    """
    granted = {
        pool["name"]: _with_device(classes.get(pool["className"], {})) for pool in pools
    }
    return {name: policy for name, policy in granted.items() if policy}


def _with_device(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy of a class, with the devices that its resources are for."""
    policy = dict(spec.get("podPolicy") or {})
    resources = policy.get("resources")
    devices: tuple[Mapping[str, Any], ...] = tuple(spec.get("devices") or ())
    first = devices[0] if devices else {}
    name = first.get("deviceClassName") or first.get("resourceName")
    if resources and name and "device" not in resources:
        policy["resources"] = {"device": name, **resources}
    return policy
