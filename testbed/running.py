"""The addresses and files of a running testbed, which `Testbed.up` returns."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterRunning:
    """One cluster of a running testbed."""

    name: str
    kubeconfig: Path
    server: str
    gateway_address: str
    """The address in the Gateway's status. It is valid only inside the data plane."""
    gateway_url: str = ""
    """The URL at which this machine reaches the Gateway; empty without a data plane."""


@dataclass(frozen=True)
class CloudsRunning:
    """The addresses of a testbed's fake clouds and of their control address.

    `testbed/cloud_process.py` serves all of them.
    """

    google_grpc: str
    google_url: str
    aws_url: str
    control_url: str


@dataclass(frozen=True)
class Running:
    """A running testbed.

    `manifests` contains classes.yaml, clusters.yaml and secrets.yaml.
    """

    home: Path
    temporal_address: str
    temporal_ui: str
    clusters: dict[str, ClusterRunning]
    control: ClusterRunning | None
    """None for a fleet without a control cluster."""
    manifests: Path
    clouds: CloudsRunning | None = None
    """None for a fleet without clusters of fake clouds."""

    def all_clusters(self) -> list[ClusterRunning]:
        """Return the control cluster, if there is one, and the simulated clusters."""
        return [*([self.control] if self.control else []), *self.clusters.values()]
