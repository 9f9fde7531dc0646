"""The state of a gateway that a watch asks for an answer."""

from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.gateway_probe import FAILED_PROBES, GatewayProbe
from activities.clusters.watch.observation_index import ObservationIndex
from tests.activities.clusters.watch.test_silence import CLUSTER, observed


class AGateway:
    """A gateway that answers or not, and counts requests by URL."""

    def __init__(self) -> None:
        self.answers = True
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bool:
        self.asked.append(url)
        return self.answers


async def test_a_gateway_is_silent_after_three_failed_probes_and_one_answer_ends_it() -> (
    None
):
    gateway = AGateway()
    probe = GatewayProbe(gateway, "https")
    await probe.probe("2001:db8::1")
    assert gateway.asked == ["https://[2001:db8::1]/"]
    gateway.answers = False
    seen = []
    for _ in range(FAILED_PROBES):
        await probe.probe("")
        seen.append(probe.answers)
    assert seen == [True, True, False]
    gateway.answers = True
    await probe.probe("")
    assert probe.answers


async def test_a_gateway_that_never_answered_is_no_evidence() -> None:
    gateway = AGateway()
    gateway.answers = False
    probe = GatewayProbe(gateway, "http")
    await probe.probe("")
    assert gateway.asked == []
    for _ in range(FAILED_PROBES):
        await probe.probe("192.0.2.1")
    assert probe.answers is None


async def test_a_gateway_that_answered_an_earlier_watch_may_be_silent_from_the_start() -> (
    None
):
    gateway = AGateway()
    gateway.answers = False
    probe = GatewayProbe(gateway, "http", "192.0.2.1")
    for _ in range(FAILED_PROBES):
        await probe.probe("")
    assert probe.answers is False
    await probe.probe("192.0.2.2")
    assert probe.answers is None


def test_the_cluster_learns_at_once_that_the_gateway_is_silent_if_its_server_is() -> (
    None
):
    told: list[ObjectOwner] = []
    index = ObservationIndex(CLUSTER, told.append)
    index.put_gateway_answers(answers=True)
    assert (told, observed(index).gateway_answers) == ([], True)
    index.put_silence("ClusterUnreachable", "no response", 40)
    told.clear()
    index.put_gateway_answers(answers=False)
    assert (told, observed(index).gateway_answers) == ([CLUSTER], False)
