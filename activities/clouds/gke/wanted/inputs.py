"""The inputs of the objects of one GKE cluster."""

from dataclasses import dataclass

from activities.clouds.desired.owner import ClusterOwner
from api_types.resources.inference_cluster import GkeCluster
from api_types.sections.clouds import GkeSettings

UNKNOWN_PROJECT = "PROJECT"
"""A placeholder for the project before the credential is read."""


@dataclass(frozen=True)
class GkeFacts:
    """Known facts about the cloud."""

    project: str = UNKNOWN_PROJECT


@dataclass(frozen=True)
class GkeInputs:
    """The owner, the block of the manifest, the settings, and the project."""

    owner: ClusterOwner
    gke: GkeCluster
    settings: GkeSettings
    project: str

    @property
    def location(self) -> str:
        """The parent of a regional cluster."""
        return f"projects/{self.project}/locations/{self.gke.region}"

    @property
    def subnet(self) -> str:
        return f"{self.owner.base}-nodes"

    @property
    def node_account(self) -> str:
        """The email address of the service account of the nodes."""
        own = f"{self.owner.account}@{self.project}.iam.gserviceaccount.com"
        return self.gke.node_service_account or own
