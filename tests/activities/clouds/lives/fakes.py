"""The fake clouds for lives."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from google.cloud import container_v1

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.lifecycle.handler import ObjectHandler
from activities.clouds.provider import Provider
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import EksSettings, GkeSettings
from fakes.aws.eks_store import ACTIVE, DEGRADED
from fakes.aws.fake import FakeAws
from fakes.gcp.calls.ledger import FAILED
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.troubles import LASTING, TROUBLES, begin
from testbed.fake_google import FakeClients
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.activities.clouds.gke.cloud import REGION
from tests.activities.clouds.lives.deaths import Deaths, Mortal, MortalAws, MortalGoogle
from tests.activities.clouds.lives.life import Fake

_STOCKOUT = container_v1.StatusCondition(code="GCE_STOCKOUT", message="no machines")
_NO_CAPACITY = {
    "code": "AsgInstanceLaunchFailures",
    "message": "Could not launch On-Demand Instances. InsufficientInstanceCapacity",
    "resourceIds": ["eks-gpu"],
}


class MortalGke(GkeProvider):
    """Google Cloud with a worker that may die."""

    def __init__(
        self, clients: FakeClients, text: str, region: str, deaths: Deaths
    ) -> None:
        super().__init__(
            text, region, GkeSettings(), clients=lambda _: clients, look_seconds=0.0
        )
        self._api = MortalGoogle(clients, deaths)
        self._deaths = deaths

    def handler(self, account: CloudAccount, kind: str) -> ObjectHandler | None:
        made = super().handler(account, kind)
        return None if made is None else Mortal(made, self._deaths)


class MortalEks(EksProvider):
    """AWS with a worker that may die."""

    def __init__(
        self, clients: AwsClients, text: str, region: str, deaths: Deaths
    ) -> None:
        super().__init__(text, region, EksSettings())
        self.clients = MortalAws(clients, deaths)
        self._deaths = deaths

    def handler(self, account: CloudAccount, kind: str) -> ObjectHandler | None:
        made = super().handler(account, kind)
        return None if made is None else Mortal(made, self._deaths)


def _degrade_google(
    google: FakeGoogle, pools: Collection[str]
) -> Callable[[], None] | None:
    running = container_v1.NodePool.Status.RUNNING
    for name in google.objects():
        is_pool = "/nodePools/" in name and name.rpartition("/")[2] in pools
        if not is_pool or google.object_of(name).status != running:
            continue
        pool = google.object_of(name)
        pool.status, pool.conditions = "RUNNING_WITH_ERROR", [_STOCKOUT]

        def recover(pool: Any = pool) -> None:
            if pool.status == container_v1.NodePool.Status.RUNNING_WITH_ERROR:
                pool.status, pool.conditions = running, []

        return recover
    return None


def _degrade_aws(aws: FakeAws, pools: Collection[str]) -> Callable[[], None] | None:
    for cluster in aws.cloud.eks.clusters.values():
        for name, group in cluster.node_groups.items():
            if name not in pools or group.status != ACTIVE:
                continue
            group.body |= {"status": DEGRADED, "health": {"issues": [_NO_CAPACITY]}}

            def recover(body: dict[str, Any] = group.body) -> None:
                if body["status"] == DEGRADED:
                    body |= {"status": ACTIVE, "health": {"issues": []}}

            return recover
    return None


def gke_fake(google: FakeGoogle) -> Fake:
    """Google Cloud."""

    def provider(text: str, region: str, deaths: Deaths) -> Provider:
        return MortalGke(FakeClients(google, text), text, region, deaths)

    return Fake(
        source="GKE",
        region=REGION,
        credential=google.credential,
        provider=provider,
        remains=google.remains,
        fault=google.fault,
        faults_left=google.faults_left,
        defects=lambda: [
            f"{call.name} {call.target}"
            for call in google.ledger().calls()
            if call.outcome == FAILED
        ],
        created=lambda: [
            name for name in google.ledger().creations() if "/keys/" not in name
        ],
        pool=a_pool,
        degrade=lambda pools: _degrade_google(google, pools),
        troubles={name: partial(begin, name, google) for name in TROUBLES},
        lasting={name: partial(begin, name, google) for name in LASTING},
    )


def eks_fake(aws: FakeAws) -> Fake:
    """Return AWS. The clients are created once, because creating them takes seconds."""
    made: dict[str, AwsClients] = {}

    def provider(text: str, region: str, deaths: Deaths) -> Provider:
        if text not in made:
            made[text] = AwsClients(read_credential(text), region, aws.url)
        return MortalEks(made[text], text, region, deaths)

    return Fake(
        source="EKS",
        region=aws.region,
        credential=aws.credential.text,
        provider=provider,
        remains=aws.remains,
        fault=aws.fault,
        faults_left=aws.faults_left,
        defects=lambda: list(aws.front.defects),
        created=lambda: [
            f"{each.operation} {each.answer_id}"
            for each in aws.ledger()
            if each.effective and each.operation.startswith(("Create", "Allocate"))
        ],
        pool=an_eks_pool,
        degrade=lambda pools: _degrade_aws(aws, pools),
        person=lambda: _act(aws),
    )


def _act(aws: FakeAws) -> None:
    """Do what the workflow asks of a person."""
    aws.remove_of_others()
    aws.restore_tags()
