"""What the objects of one GKE cluster are made from."""

from dataclasses import dataclass

from activities.clouds.owner import Owner
from api_types.resources.inference_cluster import GkeCluster
from api_types.sections.clouds import GkeSettings

UNKNOWN_PROJECT = "PROJECT"
"""Stands for the project where the credentials that fix it are not read."""


@dataclass(frozen=True)
class GkeFacts:
    """What is known of the cloud beside the manifest."""

    project: str = UNKNOWN_PROJECT


@dataclass(frozen=True)
class GkeInputs:
    """The owner, the block of the manifest, settings, and the project that holds everything."""

    owner: Owner
    gke: GkeCluster
    settings: GkeSettings
    project: str

    @property
    def location(self) -> str:
        """The parent of a regional cluster."""
        return f"projects/{self.project}/locations/{self.gke.region}"

    @property
    def subnet(self) -> str:
        """The name of the subnet."""
        return f"{self.owner.base}-nodes"

    @property
    def account_email(self) -> str:
        """The address of the service account."""
        return f"{self.owner.account}@{self.project}.iam.gserviceaccount.com"
