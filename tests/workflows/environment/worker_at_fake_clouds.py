"""The worker as users run it, but with fake clouds on this machine and shorter waits for them."""

import os
from functools import partial
from types import SimpleNamespace

import worker
from activities.clouds.accounts import ProviderFactory
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.patience import Patience
from api_types.settings import Settings
from testbed.fake_google import FakeClients

MODULE = "tests.workflows.environment.worker_at_fake_clouds"
AWS, GRPC, COMPUTE = "FAKE_AWS_URL", "FAKE_GOOGLE_GRPC", "FAKE_GOOGLE_COMPUTE"
"""The environment variables with the addresses of the fakes."""
_PACE = PollPace(poll=0.3, poll_later=0.3, second_look=0.5, second_look_every=0.1)
_PATIENCE = Patience(dependency=3.0)


def _providers(settings: Settings) -> dict[str, ProviderFactory]:
    google = SimpleNamespace(
        grpc_target=os.environ[GRPC], compute_url=os.environ[COMPUTE]
    )
    return {
        "EKS": lambda credential, region: EksProvider(
            credential, region, settings.eks, endpoint_url=os.environ[AWS]
        ),
        "GKE": lambda credential, region: GkeProvider(
            credential,
            region,
            settings.gke,
            clients=partial(FakeClients, google),
            look_seconds=0.1,
        ),
    }


if __name__ == "__main__":
    worker.main(worker.CloudProviders(_providers, _PACE, _PATIENCE))
