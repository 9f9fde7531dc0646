"""The worker of a fleet with fake clouds: that of `worker.py`, but its clouds are those on this machine, which are looked at more often.

Where they listen is in its arguments and in no setting: what users deploy cannot be pointed at a cloud without TLS.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import worker
from activities.clouds.accounts import ProviderFactory
from activities.clouds.desired import Desired
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.graph import DesiredObject
from activities.clouds.lifecycle.pace import Pace
from api_types.messages.clouds import HELM_RELEASE, CloudAccount, Facts
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.settings import Settings
from client.local.fake_google import FakeClients
from testbed.cloud_process import CHARTS
from testbed.running import CloudsRunning

# A fake is done after it was looked at twice.
_PACE = Pace(poll=0.5, poll_later=0.5, second_look=1.0, second_look_every=0.2)
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class _Google:
    grpc_target: str
    compute_url: str


class _Eks(EksProvider):
    """EKS whose charts come from beside the fake: what they install would find no nodes of AWS here."""

    charts_url = ""

    def plan(
        self, account: CloudAccount, cluster: InferenceCluster, classes: Mapping[str, InferenceClass], known: Mapping[str, Facts]
    ) -> Desired:
        """Give the objects, with other repositories."""
        desired = super().plan(account, cluster, classes, known)
        return replace(desired, objects=tuple(map(self._from_here, desired.objects)))

    def _from_here(self, wanted: DesiredObject) -> DesiredObject:
        if wanted.kind != HELM_RELEASE:
            return wanted
        (call,) = wanted.calls
        repository = f"{self.charts_url}{CHARTS}{call.parameters['chart']}/{call.parameters['version']}"
        return replace(wanted, calls=(replace(call, parameters={**call.parameters, "repository": repository}),))


def providers(clouds: CloudsRunning, settings: Settings) -> dict[str, ProviderFactory]:
    """Give what makes a fake cloud from a credential and a region, by source of InferenceClusters."""
    google = _Google(clouds.google_grpc, clouds.google_url)

    def eks(credential: str, region: str) -> EksProvider:
        made = _Eks(credential, region, settings.eks, endpoint_url=clouds.aws_url)
        made.charts_url = clouds.control_url
        return made

    return {
        "EKS": eks,
        "GKE": lambda credential, region: GkeProvider(
            credential, region, settings.gke, clients=partial(FakeClients, google), look_seconds=_LOOK_SECONDS
        ),
    }


def main() -> None:
    """Serve until a signal; `client.local.clouds.worker_command` gives the arguments."""
    worker.main(worker.Clouds(partial(providers, CloudsRunning(*sys.argv[1:])), _PACE))


if __name__ == "__main__":
    main()
