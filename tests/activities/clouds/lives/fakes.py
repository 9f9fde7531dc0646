"""The fake clouds as lives use them."""

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.lifecycle.handler import Handler
from activities.clouds.provider import Provider
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import EksSettings, GkeSettings
from client.local.fake_google import FakeClients
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.gcp.calls.ledger import FAILED
from testbed.clouds.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.activities.clouds.gke.cloud import REGION
from tests.activities.clouds.lives.deaths import Deaths, Mortal, MortalAws, MortalGoogle
from tests.activities.clouds.lives.life import Fake


class MortalGke(GkeProvider):
    """Google Cloud with a worker that may die."""

    def __init__(self, clients: FakeClients, text: str, region: str, deaths: Deaths) -> None:
        super().__init__(text, region, GkeSettings(), clients=lambda _: clients, look_seconds=0.0)
        self._api = MortalGoogle(clients, deaths)
        self._deaths = deaths

    def handler(self, account: CloudAccount, kind: str) -> Handler | None:
        made = super().handler(account, kind)
        return None if made is None else Mortal(made, self._deaths)


class MortalEks(EksProvider):
    """AWS with a worker that may die."""

    def __init__(self, clients: AwsClients, text: str, region: str, deaths: Deaths) -> None:
        super().__init__(text, region, EksSettings())
        self.clients = MortalAws(clients, deaths)
        self._deaths = deaths

    def handler(self, account: CloudAccount, kind: str) -> Handler | None:  # type: ignore[override]
        made = super().handler(account, kind)
        return None if made is None else Mortal(made, self._deaths)


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
        defects=lambda: [f"{call.name} {call.target}" for call in google.ledger().calls() if call.outcome == FAILED],
        created=lambda: [name for name in google.ledger().creations() if "/keys/" not in name],
        pool=a_pool,
    )


def eks_fake(aws: FakeAws) -> Fake:
    """AWS. The clients are made once: making them takes seconds."""
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
    )
