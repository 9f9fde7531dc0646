"""No request is cut when pods have to go: real requests, a real gateway, and engines
that stop as their pods say.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from activities.cluster_objects.cluster_api import ObjectId
from activities.render.objects.rendered import Rendered
from activities.render.objects.teardown import STEPS, deletions
from api_types.messages.cluster_work import AppliedObject
from testbed.cluster.kube import Kube, KubeError, collection, path_of
from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.activities.render.builders import a_cluster, a_member, an_engine, render
from tests.testbed.dataplane.streams import Streams

pytestmark = pytest.mark.testbed

NAMESPACE = "chat"
# A pod takes a whole node, so that draining a node moves a single replica.
GPU = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 8}
Document = dict[str, Any]
# The sleep is many times longer than a gateway needs to drop a pod, also if tests share
# two processors.
DRAIN = {"preStopSeconds": 10, "graceSeconds": 120}
# Like a platform's grace period: shorter than a request.
PLATFORM_GRACE_SECONDS = 1


class Lab:
    """One cluster with a gateway, and the operations of a user and an administrator."""

    def __init__(self, kube: Kube, cluster: ClusterRunning) -> None:
        self.kube = kube
        self.gateway = cluster.gateway_url

    def apply(self, rendered: Rendered) -> None:
        for item in rendered.objects:
            self.kube.apply(item.manifest)

    def delete(self, rendered: Rendered) -> None:
        """Delete a replica step by step, as its teardown does."""
        inventory = [
            AppliedObject(key=item.key, id=str(ObjectId.of(item.manifest)))
            for item in rendered.objects
        ]
        manifests = {item.key: item.manifest for item in rendered.objects}
        for step in STEPS:
            for entry in deletions(step, inventory):
                self.kube.delete(path_of(manifests[entry.key]))

    def pods(self, rendered: Rendered) -> list[Document]:
        """Return the pods of a replica, including ending ones."""
        selector = f"modelplane.ai/serving={rendered.workload_name}"
        return self.kube.list(
            collection("v1", "Pod", NAMESPACE), labelSelector=selector
        )

    def addresses(self, *replicas: Rendered) -> set[str]:
        """Return the addresses of replicas' pods."""
        return {
            pod["status"].get("podIP", "")
            for rendered in replicas
            for pod in self.pods(rendered)
        }

    def names(self, rendered: Rendered) -> set[str]:
        """Return the names of a replica's pods.

        A new pod may get the address of an earlier one.
        """
        return {pod["metadata"]["name"] for pod in self.pods(rendered)}

    def settled(self, rendered: Rendered) -> bool:
        """Return whether a replica has exactly the rendered copies."""
        engine = rendered.engines[0]
        pods = self.pods(rendered)
        current = [
            pod
            for pod in pods
            if pod["metadata"]["annotations"]["modelplane.ai/template-hash"]
            == engine.template_hash
        ]
        ready = [
            pod
            for pod in current
            if any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in pod["status"].get("conditions", ())
            )
        ]
        return len(pods) == len(ready) == engine.copies and not any(
            "deletionTimestamp" in pod["metadata"] for pod in pods
        )

    def pods_left(self) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.kube.list(collection("v1", "Pod", NAMESPACE))
        ]

    def cordon(self, node: str, *, cordoned: bool = True) -> None:
        self.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node},
                "spec": {"unschedulable": cordoned},
            }
        )

    def evicted(self, nodes: list[str]) -> bool:
        """Evict the remaining pods of nodes, as `kubectl drain` does repeatedly.

        Return whether none is left.
        """
        left = [
            pod
            for pod in self.kube.list(collection("v1", "Pod", NAMESPACE))
            if pod["spec"].get("nodeName") in nodes
        ]
        for pod in left:
            try:
                self.kube.evict(NAMESPACE, pod["metadata"]["name"])
            except KubeError as refused:
                if refused.code != httpx.codes.TOO_MANY_REQUESTS:
                    raise
        return not left


@pytest.fixture(scope="module")
def lab(wired: Testbed) -> Iterator[Lab]:
    running = wired.running()
    assert running
    cluster = running.clusters["eu"]
    with Kube(cluster.server, Authority(cluster.kubeconfig.parent / "pki")) as kube:
        kube.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        yield Lab(kube, cluster)
        kube.delete(
            path_of(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": NAMESPACE},
                }
            )
        )


def replica(
    name: str, *, copies: int = 2, image: str = "acme/vllm:1", drained: bool = True
) -> Rendered:
    fields = {"drain": DRAIN} if drained else {}
    engine = an_engine(
        "main",
        a_member(image=image, pool="gpus", requests=[GPU]),
        copies=copies,
        **fields,
    )
    spec = {"clusterName": "eu", "engines": [engine], "disruption": {"minAvailable": 1}}
    settings = {"termination_grace_seconds": PLATFORM_GRACE_SECONDS}
    return render(
        cluster=a_cluster(routing="service", apis=()),
        settings=settings,
        namespace=NAMESPACE,
        name=name,
        spec=spec,
    )


class Gone(NamedTuple):
    """The answers of clients while pods went, and the names of the pods before and
    after, by replica.
    """

    streams: Streams
    urls: dict[str, str]
    old: dict[str, set[str]]
    new: dict[str, set[str]]


def let_pods_go(lab: Lab, eventually: Callable[..., None], *, drained: bool) -> Gone:
    """Send requests while pods go by a rollout, by a scale-down, by the drain of two
    nodes at once, and with their replica.
    """
    name = {
        each: each if drained else f"{each}-at-once"
        for each in ("rolled", "scaled", "moved", "deleted")
    }
    before = {each: replica(name[each], drained=drained) for each in name}
    urls = {each: f"{lab.gateway}/{NAMESPACE}/{name[each]}" for each in name}
    for each, rendered in before.items():
        lab.apply(rendered)
        eventually(lambda rendered=rendered: lab.settled(rendered))
        eventually(
            lambda each=each: (
                httpx.get(
                    f"{urls[each]}/v1/models", trust_env=False, timeout=60
                ).status_code
            ),
            equals=200,
        )
    old = {each: lab.names(rendered) for each, rendered in before.items()}
    nodes = sorted(pod["spec"]["nodeName"] for pod in lab.pods(before["moved"]))
    after = {
        "rolled": replica(name["rolled"], image="acme/vllm:2", drained=drained),
        "scaled": replica(name["scaled"], copies=1, drained=drained),
        "moved": before["moved"],
    }

    with Streams(list(urls.values())) as streams:
        # Each pod has requests in flight when its turn comes.
        eventually(lambda: set(streams.begun), equals=lab.addresses(*before.values()))
        # Its endpoint is withdrawn first.
        streams.leave(urls["deleted"])
        lab.delete(before["deleted"])
        lab.apply(after["rolled"])
        lab.apply(after["scaled"])
        for node in nodes:
            lab.cordon(node)
        eventually(lambda: lab.evicted(nodes))
        for rendered in after.values():
            eventually(lambda rendered=rendered: lab.settled(rendered))
        eventually(lambda: lab.pods(before["deleted"]), equals=[])
        new, earlier = (
            {each: lab.names(rendered) for each, rendered in after.items()},
            len(streams.begun),
        )
        eventually(
            lambda: set(streams.begun[earlier:]), equals=lab.addresses(*after.values())
        )

    for rendered in after.values():
        lab.delete(rendered)
    for node in nodes:
        lab.cordon(node, cordoned=False)
    eventually(lab.pods_left, equals=[])
    return Gone(streams, urls, old, new)


def test_no_request_is_cut_when_pods_are_deleted(
    lab: Lab, eventually: Callable[..., None]
) -> None:
    streams, _, old, new = let_pods_go(lab, eventually, drained=True)
    assert streams.cut == []
    assert Counter(streams.begun) == Counter(streams.pods)
    assert not new["rolled"] & old["rolled"]
    assert new["scaled"] < old["scaled"]
    assert not new["moved"] & old["moved"]


@pytest.mark.soak
def test_without_drain_each_of_the_same_steps_cuts_requests(
    lab: Lab, eventually: Callable[..., None]
) -> None:
    """The test above depends on this: its requests take far longer than the platform's
    grace period.
    """
    streams, urls, _, _ = let_pods_go(lab, eventually, drained=False)
    assert {
        each
        for each, url in urls.items()
        if any(cut.startswith(f"{url}: ") for cut in streams.cut)
    } == set(urls)
