"""Where to reach everything of a testbed that is up: what `Testbed.up` gives and tests and commands read."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterRunning:
    """One cluster of the testbed that is up."""

    name: str
    kubeconfig: Path
    server: str
    gateway_address: str
    """What the Gateway says in its status; it leads somewhere only inside the data plane."""
    gateway_url: str = ""
    """Where this machine reaches the Gateway; empty without a data plane."""


@dataclass(frozen=True)
class CloudsRunning:
    """Where the fake clouds of a testbed listen, and where their process tells what is at them (`testbed/cloud_process.py`)."""

    google_grpc: str
    google_url: str
    aws_url: str
    control_url: str


@dataclass(frozen=True)
class Running:
    """A testbed that is up: where to reach everything. `manifests` holds classes.yaml, clusters.yaml and secrets.yaml."""

    home: Path
    temporal_address: str
    temporal_ui: str
    clusters: dict[str, ClusterRunning]
    control: ClusterRunning | None
    """None when the fleet goes without."""
    manifests: Path
    clouds: CloudsRunning | None = None
    """None for a fleet without clusters that fake clouds hand out."""

    def all_clusters(self) -> list[ClusterRunning]:
        """List the control cluster, where there is one, and the simulated ones."""
        return [*([self.control] if self.control else []), *self.clusters.values()]
