"""The worker of a fleet with fake clouds: `worker.py` with the clouds of this machine.

The addresses of the clouds are arguments and not settings, so that a deployed worker
cannot be pointed at a cloud without TLS. This worker polls its clouds more often than a
deployed worker does.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import worker
from activities.clouds.accounts import ProviderFactory
from activities.clouds.desired.graph import DesiredObject
from activities.clouds.desired.plan import Desired
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.permitted import permitted_sources
from api_types.messages.clouds import HELM_RELEASE, CloudAccount, Facts
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.settings import Settings
from testbed.cloud_addresses import CHARTS
from testbed.fake_google import FakeClients
from testbed.running import CloudsRunning

# A fake's operation is done after two reads.
_PACE = PollPace(poll=0.5, poll_later=0.5, second_look=1.0, second_look_every=0.2)
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class _Google:
    grpc_target: str
    compute_url: str


class _Eks(EksProvider):
    """EKS with the charts of the fake.

    The real charts would find no AWS nodes in the testbed.
    """

    charts_url = ""

    def plan(
        self,
        account: CloudAccount,
        cluster: InferenceCluster,
        classes: Mapping[str, InferenceClass],
        known: Mapping[str, Facts],
    ) -> Desired:
        """Return the desired objects with other chart repositories."""
        desired = super().plan(account, cluster, classes, known)
        return replace(desired, objects=tuple(map(self._from_here, desired.objects)))

    def _from_here(self, wanted: DesiredObject) -> DesiredObject:
        if wanted.kind != HELM_RELEASE:
            return wanted
        (call,) = wanted.calls
        chart, version = call.parameters["chart"], call.parameters["version"]
        repository = f"{self.charts_url}{CHARTS}{chart}/{version}"
        changed = {**call.parameters, "repository": repository}
        return replace(wanted, calls=(replace(call, parameters=changed),))


def providers(clouds: CloudsRunning, settings: Settings) -> dict[str, ProviderFactory]:
    """Return the factory of each fake cloud's client, by source of InferenceClusters."""
    google = _Google(clouds.google_grpc, clouds.google_url)
    permitted = permitted_sources(settings.provision)

    def eks(credential: str, region: str) -> EksProvider:
        made = _Eks(
            credential,
            region,
            settings.eks,
            endpoint_url=clouds.aws_url,
            permitted=permitted,
        )
        made.charts_url = clouds.control_url
        return made

    return {
        "EKS": eks,
        "GKE": lambda credential, region: GkeProvider(
            credential,
            region,
            settings.gke,
            clients=partial(FakeClients, google, permitted=permitted),
            look_seconds=_LOOK_SECONDS,
        ),
    }


def main() -> None:
    """Serve until a signal.

    `client.local.clouds.worker_command` builds the arguments.
    """
    worker.main(
        worker.CloudProviders(partial(providers, CloudsRunning(*sys.argv[1:])), _PACE)
    )


if __name__ == "__main__":
    main()
