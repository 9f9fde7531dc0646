"""The fleet that a testbed simulates, in one small YAML file.

The file contains only clusters, their labels, their pools, and the devices of each node
class. Devices have the format of `InferenceClass.spec.devices`, so that a class can be
copied from a real fleet. All errors of a file are reported together, each with the
field, the value and the remedy.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from ruamel.yaml.error import YAMLError

from testbed.documents import load_all

BUILT_IN = Path(__file__).parent / "default-fleet.yaml"
CREATED = Path(__file__).parent / "created-clusters.yaml"
CONTROL = "control"
CLUSTERS_MAX = 31
"""Each cluster gets one /21 of 10.244.0.0/16 for its pods.

The control cluster is the 32nd.
"""

DEVICES_PER_SLICE_MAX = 128
"""The Kubernetes limit for one ResourceSlice. A node publishes one slice per driver."""

Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=40)
]
Label = Annotated[str, StringConstraints(max_length=63)]


class FleetFileError(Exception):
    """The fleet file cannot be used. The message lists all errors."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Attribute(_Strict):
    """One attribute of a device, with exactly one field set, as in a ResourceSlice."""

    string: Annotated[str, StringConstraints(max_length=64)] | None = None
    version: Annotated[str, StringConstraints(max_length=64)] | None = None
    boolean: Annotated[bool | None, Field(alias="bool")] = None
    integer: Annotated[int | None, Field(alias="int")] = None

    @model_validator(mode="after")
    def _one_value(self) -> "Attribute":
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("exactly one of string, version, bool and int must be set")
        return self


class SimulatedCapacity(_Strict):
    """A countable property of a device, as a Kubernetes quantity."""

    value: Annotated[
        str,
        StringConstraints(
            pattern=r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[mkMGTPE])?$", max_length=32
        ),
    ]


class SimulatedDevice(_Strict):
    """`count` equal devices of one node, as in InferenceClass.spec.devices."""

    name: Name
    claim: Literal["DRA", "Synthetic", "DevicePlugin"] = "DRA"
    driver: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63),
    ]
    device_class_name: Annotated[str | None, Field(alias="deviceClassName")] = None
    resource_name: Annotated[str | None, Field(alias="resourceName")] = None
    count: Annotated[int, Field(ge=1, le=64)] = 1
    attributes: Annotated[dict[str, Attribute], Field(max_length=32)] = {}
    capacity: Annotated[dict[str, SimulatedCapacity], Field(max_length=32)] = {}

    @model_validator(mode="after")
    def _claimable(self) -> "SimulatedDevice":
        if self.claim == "DRA" and not self.device_class_name:
            raise ValueError("deviceClassName is needed when claim is DRA")
        if self.claim == "DevicePlugin" and not self.resource_name:
            raise ValueError("resourceName is needed when claim is DevicePlugin")
        return self


class NodeClass(_Strict):
    """The devices of one node of a pool."""

    devices: Annotated[list[SimulatedDevice], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _publishable(self) -> "NodeClass":
        names = [device.name for device in self.devices]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"device names must differ, {', '.join(twice)} stands twice"
            )
        for driver in {device.driver for device in self.devices}:
            if (
                sum(
                    device.count
                    for device in self.devices
                    if device.driver == driver and device.claim == "DRA"
                )
                > DEVICES_PER_SLICE_MAX
            ):
                raise ValueError(
                    f"driver {driver} has more than {DEVICES_PER_SLICE_MAX} "
                    "devices on one node; lower the counts"
                )
        return self


class Pool(_Strict):
    """A pool of identical nodes in one cluster."""

    name: Name
    node_class: Annotated[str, Field(alias="class")]
    nodes: Annotated[int, Field(ge=0, le=1000)]


class SimulatedCluster(_Strict):
    """One simulated inference cluster."""

    name: Name
    labels: dict[str, Label] = {}
    routing: Literal["service", "pool"] = "service"
    """The object between gateway and engines: a Service, or an InferencePool with its
    endpoint picker.

    Traefik supports only a Service.
    """
    stack: bool = True
    """Whether the testbed installs the parts of a serving stack: definitions, Gateway,
    DeviceClasses, LeaderWorkerSet.

    Otherwise the control plane must install the stack.
    """
    token_review: Annotated[str, Field(alias="tokenReview")] = ""
    """The URL at which the API server reviews unknown bearer tokens.

    It belongs to the fake cloud that hands out this cluster. Without it, only
    certificates and service accounts can authenticate.
    """
    cloud: Literal["", "GKE", "EKS"] = ""
    """The fake cloud that hands out this cluster as one of its own.

    The API server asks that cloud to review tokens. The manifests of the fleet do not
    contain the cluster.
    """
    pools: Annotated[list[Pool], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _pools_differ(self) -> "SimulatedCluster":
        names = [pool.name for pool in self.pools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"pool names must differ, {', '.join(twice)} stands twice")
        return self


class FleetFile(_Strict):
    """The whole file."""

    clusters: Annotated[
        list[SimulatedCluster], Field(min_length=1, max_length=CLUSTERS_MAX)
    ]
    classes: Annotated[dict[Name, NodeClass], Field(min_length=1)]
    control: bool = True
    """Whether there is a control cluster: an API server without nodes, whose Gateway
    routes to the other clusters.
    """

    @model_validator(mode="after")
    def _fits_together(self) -> "FleetFile":
        faults = []
        names = [cluster.name for cluster in self.clusters]
        faults += [
            f"clusters: the name {name} stands twice; rename one"
            for name in sorted({n for n in names if names.count(n) > 1})
        ]
        if CONTROL in names:
            faults.append(
                f"clusters: {CONTROL} is the name of the testbed's own control "
                "cluster; rename this one"
            )
        for cluster in self.clusters:
            for pool in cluster.pools:
                if pool.node_class not in self.classes:
                    known = ", ".join(sorted(self.classes))
                    faults.append(
                        f"clusters.{cluster.name}.pools.{pool.name}.class: "
                        f"{pool.node_class} is not under classes, which has {known}"
                    )
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @property
    def has_clouds(self) -> bool:
        """Whether fake clouds hand out some of the clusters."""
        return any(cluster.cloud for cluster in self.clusters)

    def known_at_first(self) -> "FleetFile":
        """Return the fleet without the clusters and the classes of fake clouds.

        A class is kept if another cluster uses it.
        """
        clusters = [cluster for cluster in self.clusters if not cluster.cloud]
        created = {
            pool.node_class
            for cluster in self.clusters
            if cluster.cloud
            for pool in cluster.pools
        }
        kept = {pool.node_class for cluster in clusters for pool in cluster.pools}
        classes = {
            name: each
            for name, each in self.classes.items()
            if name in kept or name not in created
        }
        return self.model_copy(update={"clusters": clusters, "classes": classes})

    def with_clouds(self) -> "FleetFile":
        """Return the fleet with one cluster for each fake cloud that has none yet.

        Raise FleetFileError if a name is taken.
        """
        if self.has_clouds:
            return self
        created = FleetFile.load(CREATED)
        names = {cluster.name for cluster in created.clusters}
        if taken := sorted(
            names & {cluster.name for cluster in self.clusters}
        ) + sorted({*self.classes} & {*created.classes}):
            raise FleetFileError(
                "\n".join(
                    f"the fake clouds already use the name {name}; rename yours"
                    for name in taken
                )
            )
        return self.model_copy(
            update={
                "clusters": [*self.clusters, *created.clusters],
                "classes": self.classes | created.classes,
            }
        )

    @classmethod
    def load(cls, path: Path | None = None) -> "FleetFile":
        """Read a fleet file, or the built-in fleet of two clusters.

        Raise FleetFileError with all errors.
        """
        source = str(path) if path else "the built-in fleet"
        try:
            documents = load_all((path or BUILT_IN).read_text(encoding="utf-8"))
        except OSError as error:
            raise FleetFileError(f"{source}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise FleetFileError(f"{source} is not UTF-8 text") from error
        except YAMLError as error:
            raise FleetFileError(f"{source} is not YAML: {error}") from error
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise FleetFileError(
                f"{source}: must hold one document with the keys clusters and classes"
            )
        try:
            return cls.model_validate(documents[0])
        except ValidationError as error:
            faults = [line for fault in error.errors() for line in _lines(dict(fault))]
            raise FleetFileError(
                "\n".join(
                    [
                        f"{source} has {len(faults)} fault(s):",
                        *(f"  {line}" for line in faults),
                    ]
                )
            ) from None


def _lines(fault: dict[str, Any]) -> list[str]:
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in fault["loc"]
        if part != "[key]"
    ).lstrip(".")
    message = re.sub(r"^Value error, ", "", fault["msg"])
    if fault["type"] == "extra_forbidden":
        message = "no such field; remove it or correct its spelling"
    elif fault["type"] == "missing":
        message = "is missing; add it"
    elif fault["type"] != "value_error":
        message = f"{message[:1].lower()}{message[1:]}, got {fault['input']!r}"
    return [f"{place}: {line}" if place else line for line in message.splitlines()]
