"""The worker as users run it, but its clouds are fakes on this machine, and it waits less for them."""

import os
from dataclasses import dataclass
from functools import partial

import worker
from activities.clouds.accounts import ProviderFactory
from activities.clouds.activities import CloudActivities, Patience
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.lifecycle.pace import Pace
from api_types.settings import Settings
from tests.activities.clouds.gke.cloud import FakeClients

MODULE = "tests.workflows.environment.worker_at_fake_clouds"
AWS, GRPC, COMPUTE = "FAKE_AWS_URL", "FAKE_GOOGLE_GRPC", "FAKE_GOOGLE_COMPUTE"
"""Variables with where the fakes listen."""
_PACE = Pace(poll=0.3, poll_later=0.3, second_look=0.5, second_look_every=0.1)
_PATIENCE = Patience(dependency=3.0)


@dataclass
class _Google:
    grpc_target: str
    compute_url: str


def _providers(settings: Settings) -> dict[str, ProviderFactory]:
    google = _Google(os.environ[GRPC], os.environ[COMPUTE])
    return {
        "EKS": lambda credential, region: EksProvider(credential, region, settings.eks, endpoint_url=os.environ[AWS]),
        "GKE": lambda credential, region: GkeProvider(
            credential, region, settings.gke, clients=partial(FakeClients, google), look_seconds=0.1
        ),
    }


if __name__ == "__main__":
    vars(worker)["cloud_providers"] = _providers
    vars(worker)["CloudActivities"] = partial(CloudActivities, pace=_PACE, patience=_PATIENCE)
    worker.main()
