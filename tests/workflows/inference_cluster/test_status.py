"""The status of a cluster: tables over pure functions."""

from typing import Any, NamedTuple

import pytest

from api_types import labels
from api_types.messages.clouds import CloudReport
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster
from api_types.pins.features import DATA_PARALLEL
from api_types.taints import with_taint
from tests.workflows.inference_cluster.builders import (
    DEVICES,
    H100,
    a_cluster,
    a_pool,
    a_spec,
)
from workflows.entity.failures import Failure
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.gateway import Gateway, gateway_of, with_known_gateway
from workflows.inference_cluster.state import ClusterState, KnownClass
from workflows.inference_cluster.status import (
    backend_verdict,
    cluster_verdict,
    drivers,
    occupied_message,
    ready_verdict,
    status_fields,
    view_of,
)

UNRESPONSIVE = ObservedCluster(
    reachable=False, error="connection refused", gateway_address="192.0.2.1"
)
NO_GATEWAY = ObservedCluster(reachable=True)
WITHOUT_DRA = ClusterFacts(kubernetes_version="1.33", storage_class_name="rwx")
BY_PLUGIN = KnownClass(
    generation=1,
    spec={
        "devices": [
            {"name": "gpu", "claim": "DevicePlugin", "resourceName": "nvidia.com/gpu"}
        ]
    },
)
SYNTHETIC = KnownClass(
    generation=1, spec={"devices": [{"name": "gpu", "claim": "Synthetic"}]}
)
NEW = {"facts": None, "observed": None, "connected_generation": 0}
PROVISIONED = {**a_spec(), "cluster": {"source": "AKS"}}
AT_CLOUD = {**a_spec(), "cluster": {"source": "GKE", "gke": {"region": "europe-west4"}}}


def at_cloud(
    was_ready: bool = False, trouble: str = "", **report: Any
) -> dict[str, Any]:
    """Return a cloud cluster with this report."""
    found = CloudReport(**{"uid": "u", "sequence": 1, **report}) if report else None
    return {
        "spec": AT_CLOUD,
        "cloud": CloudLink(report=found, was_ready=was_ready, trouble=trouble),
    }


class Case(NamedTuple):
    """A cluster, and the status and reason of its three conditions."""

    story: str
    state: ClusterState
    cluster: tuple[str, str]
    backend: tuple[str, str]
    ready: tuple[str, str]


RUNNING, HEALTHY, AVAILABLE = (
    ("True", "ClusterRunning"),
    ("True", "BackendHealthy"),
    ("True", "Available"),
)
WAITING, UNKNOWN = ("False", "WaitingForCluster"), ("Unknown", "WaitingForCluster")
CREATING, UNAVAILABLE = ("False", "Creating"), ("False", "Unavailable")
LOST = ("Unknown", "Unavailable")
CASES = [
    Case(
        "a connected cluster with a gateway is Ready",
        a_cluster(),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "a cluster that has to be provisioned is not supported",
        a_cluster(spec=PROVISIONED, **NEW),
        ("False", "ProviderNotSupported"),
        WAITING,
        CREATING,
    ),
    Case(
        "a cloud that was not heard of yet",
        a_cluster(**at_cloud(), **NEW),
        ("False", "Provisioning"),
        WAITING,
        CREATING,
    ),
    Case(
        "an error at the cloud is part of provisioning",
        a_cluster(
            **at_cloud(reason="Provisioning", message="QuotaExceeded: net/vpc"), **NEW
        ),
        ("False", "Provisioning"),
        WAITING,
        CREATING,
    ),
    Case(
        "a pool that cannot be built is named before the cluster was ready",
        a_cluster(**at_cloud(reason="InvalidNodePool", usable=True), **NEW),
        ("False", "InvalidNodePool"),
        WAITING,
        CREATING,
    ),
    Case(
        "a cluster at a cloud is ready",
        a_cluster(**at_cloud(was_ready=True, usable=True, ready=True)),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "trouble with a pool later does not make it unready",
        a_cluster(
            was_ready=True,
            **at_cloud(
                was_ready=True, trouble="CapacityUnavailable: pool/gpu", usable=True
            ),
        ),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "a control plane that is gone does",
        a_cluster(
            was_ready=True,
            **at_cloud(
                was_ready=True,
                reason="Provisioning",
                message="it does not exist any more",
            ),
        ),
        ("False", "Provisioning"),
        UNKNOWN,
        UNAVAILABLE,
    ),
    Case(
        "a class that does not exist is waited for",
        a_cluster(classes={}, **NEW),
        ("False", "WaitingForClasses"),
        WAITING,
        CREATING,
    ),
    Case(
        "a class that is deleted later changes nothing",
        a_cluster(classes={}, was_ready=True),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "before the first connect it is connecting",
        a_cluster(**NEW),
        ("False", "Provisioning"),
        WAITING,
        CREATING,
    ),
    Case(
        "an API server that did not answer makes it Unreachable",
        a_cluster(failure=Failure("ClusterUnreachable", "timeout"), **NEW),
        ("False", "Unreachable"),
        WAITING,
        CREATING,
    ),
    Case(
        "refused credentials are shown as such",
        a_cluster(failure=Failure("CredentialsInvalid", "401"), **NEW),
        ("False", "CredentialsInvalid"),
        WAITING,
        CREATING,
    ),
    Case(
        "any other failure is part of provisioning",
        a_cluster(failure=Failure("Unsupported", "no DRA"), **NEW),
        ("False", "Provisioning"),
        WAITING,
        CREATING,
    ),
    Case(
        "a Ready cluster that stops answering is unknown",
        a_cluster(
            observed=UNRESPONSIVE,
            unreachable_since="2026-01-01T00:00:00Z",
            was_ready=True,
        ),
        ("Unknown", "Unreachable"),
        UNKNOWN,
        LOST,
    ),
    Case(
        "a Ready cluster without an observer is unknown, whatever its last observation",
        a_cluster(unwatched_since="2026-01-01T00:00:00Z", was_ready=True),
        ("Unknown", "WaitingForWorker"),
        UNKNOWN,
        LOST,
    ),
    Case(
        "a cluster whose task queue no worker serves is unknown",
        a_cluster(failure=Failure("WaitingForWorker", "no worker"), **NEW),
        ("Unknown", "WaitingForWorker"),
        WAITING,
        ("Unknown", "Creating"),
    ),
    Case(
        "a cluster without any DRA, whose classes claim by nothing else, is unsupported",
        a_cluster(facts=WITHOUT_DRA),
        ("False", "UnsupportedCluster"),
        UNKNOWN,
        CREATING,
    ),
    Case(
        "a class with devices of a plugin needs no DRA",
        a_cluster(facts=WITHOUT_DRA, classes={"h100-8x": BY_PLUGIN}),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "a class whose devices are not claimed needs none",
        a_cluster(facts=WITHOUT_DRA, classes={"h100-8x": SYNTHETIC}),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "a class with devices of both kinds is used by its plugin",
        a_cluster(
            facts=WITHOUT_DRA,
            classes={
                "h100-8x": H100.model_copy(
                    update={"spec": {"devices": [*DEVICES, *BY_PLUGIN.spec["devices"]]}}
                )
            },
        ),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "one pool that can be used is enough",
        a_cluster(
            facts=WITHOUT_DRA,
            spec=a_spec(a_pool(), a_pool("b", "b")),
            classes={"h100-8x": H100, "b": BY_PLUGIN},
        ),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "a cluster without pools is not judged by them",
        a_cluster(facts=WITHOUT_DRA, spec=a_spec() | {"nodePools": []}),
        RUNNING,
        HEALTHY,
        AVAILABLE,
    ),
    Case(
        "without a gateway the backend is being installed",
        a_cluster(observed=NO_GATEWAY),
        RUNNING,
        ("False", "Installing"),
        CREATING,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_conditions_of_a_cluster(case: Case) -> None:
    view = view_of(case.state)
    verdicts = (cluster_verdict(view), backend_verdict(view), ready_verdict(view))
    assert tuple(verdict[:2] for verdict in verdicts) == (
        case.cluster,
        case.backend,
        case.ready,
    )


def test_missing_classes_are_named_in_order() -> None:
    pools = a_spec(
        {"name": "b", "className": "l40s"},
        {"name": "a", "className": "a100"},
        {"name": "c", "className": "h100-8x"},
    )
    said = cluster_verdict(view_of(a_cluster(spec=pools, **NEW)))
    assert (said.reason, said.message) == (
        "WaitingForClasses",
        "InferenceClass a100, l40s does not exist; apply it",
    )


def test_ready_names_the_condition_that_is_false() -> None:
    assert (
        ready_verdict(view_of(a_cluster(classes={}, **NEW))).message
        == "WaitingForClasses: InferenceClass h100-8x does not exist; apply it"
    )
    waiting = a_cluster(**at_cloud(reason="Provisioning"), **NEW)
    assert ready_verdict(view_of(waiting)).message == "Provisioning"


def test_a_cluster_with_an_older_version_of_dra_is_accepted_with_a_message() -> None:
    said = cluster_verdict(
        view_of(
            a_cluster(
                facts=ClusterFacts(kubernetes_version="1.33", dra_version="v1beta1")
            )
        )
    )
    assert said[:2] == RUNNING
    assert (
        said.message
        == "claims use resource.k8s.io/v1beta1; Kubernetes 1.34 and later serve v1"
    )
    assert (
        cluster_verdict(
            view_of(
                a_cluster(
                    facts=ClusterFacts(kubernetes_version="1.35", dra_version="v1")
                )
            )
        ).message
        == ""
    )
    (no_dra,) = [
        case for case in CASES if case.story.startswith("a cluster without any DRA")
    ]
    assert (
        "serves no version of resource.k8s.io (DRA)"
        in cluster_verdict(view_of(no_dra.state)).message
    )


def test_an_unobservable_part_of_a_responsive_cluster_is_shown_and_changes_nothing_else() -> (
    None
):
    observed = ObservedCluster(
        error_type="AnswerTooLarge",
        error="cluster eu: GET /api/v1/pods: the response is larger than 16 MiB",
    )
    verdict = cluster_verdict(view_of(a_cluster(observed=observed)))
    assert (verdict.status, verdict.reason) == RUNNING
    assert "GET /api/v1/pods: the response is larger than 16 MiB" in verdict.message


def test_an_unresponsive_cluster_shows_since_when() -> None:
    state = a_cluster(observed=UNRESPONSIVE, unreachable_since="2026-01-01T00:00:00Z")
    assert (
        cluster_verdict(view_of(state)).message
        == "no answer since 2026-01-01T00:00:00Z: connection refused; the endpoints stay "
        "in their routes"
    )


@pytest.mark.parametrize(
    ("annotations", "said"),
    [({}, "preflight"), ({labels.STACK: "external"}, "has no address")],
    ids=["managed", "external"],
)
def test_an_external_stack_has_another_waiting_message_than_a_managed_one(
    annotations: dict[str, str], said: str
) -> None:
    assert (
        said
        in backend_verdict(
            view_of(a_cluster(observed=NO_GATEWAY, annotations=annotations))
        ).message
    )


def test_the_observed_gateway_precedes_the_one_found_on_connection() -> None:
    facts = ClusterFacts(gateway_address="192.0.2.9")
    assert gateway_of(a_cluster(facts=facts)) == Gateway("192.0.2.1", "")
    gone = ObservedCluster(gateway_message="Gateway does not exist")
    assert gateway_of(a_cluster(facts=facts, observed=gone)) == Gateway(
        "", "Gateway does not exist"
    )
    assert gateway_of(a_cluster(facts=facts, observed=NO_GATEWAY)) == Gateway(
        "192.0.2.9", ""
    )
    assert gateway_of(a_cluster(**NEW)) == Gateway()


def test_the_gateway_is_kept_while_the_cluster_is_silent_and_removed_when_reported_gone() -> (
    None
):
    before = ObservedCluster(gateway_address="192.0.2.1")
    silent, gone = (
        ObservedCluster(reachable=False, error="no response"),
        ObservedCluster(gateway_message="Gateway does not exist"),
    )
    assert with_known_gateway(silent, before) == silent.model_copy(
        update={"gateway_address": "192.0.2.1"}
    )
    last = silent.model_copy(update={"gateway_address": "192.0.2.7"})
    assert [with_known_gateway(each, before) for each in (gone, last)] == [gone, last]
    assert with_known_gateway(ObservedCluster(), before) == ObservedCluster()
    assert with_known_gateway(silent, None) == silent


def test_the_status_shows_pools_gateway_and_the_storage_class_if_there_is_one() -> None:
    pools = [{"name": "h100", "nodes": 2, "devices": []}]
    assert status_fields("eu-1", a_cluster(pools=pools)) == {
        "namespace": labels.SYSTEM_NAMESPACE,
        "providerConfigRef": {
            "name": status_fields("eu-1", a_cluster())["providerConfigRef"]["name"]
        },
        "cache": {"storageClassName": "rwx"},
        "gateway": {"address": "192.0.2.1"},
        "gpuPools": pools,
    }
    existing = {"source": "Existing", "existing": {"secretRef": {"name": "eu-1"}}}
    facts = ClusterFacts(kubernetes_version="1.35")
    assert "cache" not in status_fields(
        "eu-1", a_cluster(spec={"cluster": existing}, facts=facts)
    )
    assert status_fields("eu-1", ClusterState()) == {
        "namespace": labels.SYSTEM_NAMESPACE
    }


def test_a_deletion_shows_neither_shortages_nor_missing_features() -> None:
    pool = {"name": "h100", "nodes": 2, "devices": []}
    facts = ClusterFacts(
        kubernetes_version="1.35", missing_features=[DATA_PARALLEL.key]
    )
    kept = a_cluster(pools=[{**pool, "shortage": "no machines"}], facts=facts)
    shown = status_fields("eu-1", kept)
    assert (shown["gpuPools"], shown["missingFeatures"]) == (
        kept.pools,
        [DATA_PARALLEL.key],
    )
    kept.deletion_timestamp = "2026-01-05T12:00:00Z"
    shown = status_fields("eu-1", kept)
    assert (shown["gpuPools"], "missingFeatures" in shown) == ([pool], False)


def test_a_device_class_is_mapped_to_its_driver() -> None:
    devices = [
        {"deviceClassName": "gpu", "driver": "gpu.nvidia.com"},
        {"deviceClassName": "nic"},
        {"driver": "x"},
    ]
    assert drivers([{"devices": devices}]) == {"gpu": "gpu.nvidia.com"}


GONE = "waits until ModelReplica ml/qwen-eu-0 is gone; "
BOTH_GONE = "waits until ModelReplica ml/qwen-eu-0, ml/qwen-eu-1 are gone; "
EVICTED = {"occupied": ["ml/qwen-eu-0", "ml/qwen-eu-1"], "spec": with_taint(a_spec())}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            a_cluster(occupied=None),
            "waits for the scheduler to report which replicas are on the cluster",
        ),
        (
            a_cluster(occupied=["ml/qwen-eu-0"]),
            (
                f"{GONE}`modelplane delete inferencecluster/eu --evict` moves replicas to "
                "other clusters"
            ),
        ),
        (
            a_cluster(**EVICTED),
            (
                f"{BOTH_GONE}the scheduler evicts all except those that tolerate the "
                f"taint {labels.MAINTENANCE}: delete their ModelDeployments"
            ),
        ),
    ],
    ids=["the scheduler has not answered", "nothing moves them", "they are evicted"],
)
def test_a_deletion_names_the_replicas_it_waits_for_and_the_command_that_moves_them(
    state: ClusterState, message: str
) -> None:
    assert occupied_message("eu", state) == message
