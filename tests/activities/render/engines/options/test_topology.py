"""The placement of the pods of a copy and of the devices of a pod."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from activities.render.inputs.facts import ClusterInput
from activities.render.inputs.findings import ServingStackMissing, TopologyUnsupported
from activities.render.objects.rendered import Rendered
from activities.render.objects.teardown import step_of
from activities.render.replica import InvalidSpec
from api_types.pins import apiversions
from tests.activities.render.builders import (
    GPU,
    a_cluster,
    a_gang,
    a_member,
    an_engine,
    container,
    keys,
    nothings,
    pod,
    render,
    the,
)

RACK = "topology.acme.example/rack"
KAI = a_cluster(scheduler_type="kai")
KUEUE = a_cluster(scheduler_type="kueue")
NIC = {"name": "nic", "deviceClassName": "rdma.acme.example", "count": 8}
PCIE = "resource.kubernetes.io/pcieRoot"
NVLINK = a_cluster(apis=sorted({*apiversions.STACK, apiversions.COMPUTE_DOMAIN}))


def in_domain(
    cluster: ClusterInput | None = None,
    settings: Mapping[str, Any] | None = None,
    **domain: Any,
) -> Rendered:
    """Return a gang, each copy in one rack."""
    engine = a_gang(
        topology={"domain": {"nodeLabel": RACK, **domain}}, copies=1 if settings else 2
    )
    return render(engine, cluster=cluster, settings=settings)


def annotations(rendered: Rendered, role: str = "") -> dict[str, str]:
    """Return the topology annotations of a role's pods, or of the workload."""
    found = pod(rendered, role=role) if role else the(rendered, "model-serving-main")
    return {
        key: value
        for key, value in found["metadata"].get("annotations", {}).items()
        if "topology" in key or "podset" in key
    }


def test_an_exclusive_domain_is_an_annotation_of_the_set_and_of_its_pods() -> None:
    rendered = in_domain(exclusive=True)
    wanted = {"leaderworkerset.sigs.k8s.io/exclusive-topology": RACK}
    # The pods need it too: a changed annotation of the set alone rolls no pod.
    assert [annotations(rendered, role) for role in ("", "Leader", "Worker")] == [
        wanted,
        wanted,
        wanted,
    ]
    assert "affinity" not in pod(rendered)["spec"]


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_a_shared_domain_is_affinity_within_the_group(role: str) -> None:
    rendered = in_domain()
    (term,) = pod(rendered, role=role)["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term == {
        "labelSelector": {
            "matchLabels": {
                "leaderworkerset.sigs.k8s.io/name": rendered.engines[0].workload_name
            }
        },
        "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-key"],
        "topologyKey": RACK,
    }
    assert annotations(rendered) == {}


def test_a_preferred_domain_is_a_preference() -> None:
    affinity = pod(in_domain(mode="Preferred"))["spec"]["affinity"]["podAffinity"]
    assert [
        term["weight"]
        for term in affinity.pop("preferredDuringSchedulingIgnoredDuringExecution")
    ] == [100]
    assert affinity == {}


@pytest.mark.parametrize(
    ("mode", "key"), [("Required", "required"), ("Preferred", "preferred")]
)
def test_kueue_places_leader_and_followers_as_one_group(mode: str, key: str) -> None:
    rendered = in_domain(KUEUE, mode=mode)
    wanted = {
        f"kueue.x-k8s.io/podset-{key}-topology": RACK,
        "kueue.x-k8s.io/podset-group-name": "copy",
    }
    assert [annotations(rendered, role) for role in ("", "Leader", "Worker")] == [
        {},
        wanted,
        wanted,
    ]
    assert "affinity" not in pod(rendered)["spec"]


@pytest.mark.parametrize(
    ("mode", "key"), [("Required", "required"), ("Preferred", "preferred")]
)
def test_kai_reads_the_topology_from_the_set(mode: str, key: str) -> None:
    rendered = in_domain(KAI, mode=mode, topologyName="racks")
    wanted = {
        "kai.scheduler/topology": "racks",
        f"kai.scheduler/topology-{key}-placement": RACK,
    }
    assert [annotations(rendered, role) for role in ("", "Leader", "Worker")] == [
        wanted,
        wanted,
        wanted,
    ]
    assert "affinity" not in pod(rendered)["spec"]


@pytest.mark.parametrize(
    ("mode", "level"),
    [("Required", "requiredTopologyLevel"), ("Preferred", "preferredTopologyLevel")],
)
def test_an_explicit_group_has_the_constraint_itself(mode: str, level: str) -> None:
    rendered = in_domain(KAI, {"kai_mode": "explicit"}, mode=mode, topologyName="racks")
    assert the(rendered, "gang-main")["spec"]["topologyConstraint"] == {
        "topology": "racks",
        level: RACK,
    }


@pytest.mark.parametrize(
    ("cluster", "domain", "said"),
    [
        (
            KUEUE,
            {"exclusive": True},
            r"runs the scheduler kueue, .* remove exclusive, or select clusters",
        ),
        (
            KAI,
            {"exclusive": True, "topologyName": "racks"},
            r"runs the scheduler kai, .* remove exclusive, or select clusters",
        ),
        (
            KAI,
            {},
            r"runs the scheduler kai, which needs the name of a Topology object: set topologyName",
        ),
        (
            a_cluster(kubernetes_version="1.30"),
            {},
            r"runs Kubernetes 1\.30, and affinity within a copy needs 1\.31: set exclusive: true",
        ),
    ],
    ids=[
        "kueue-exclusive",
        "kai-exclusive",
        "kai-without-a-topology",
        "an-old-cluster",
    ],
)
def test_an_unsupported_topology_is_refused_with_the_next_step(
    cluster: ClusterInput, domain: dict[str, Any], said: str
) -> None:
    with pytest.raises(
        TopologyUnsupported,
        match=rf"engine main, topology\.domain: cluster eu-1 {said}",
    ) as refused:
        in_domain(cluster, **domain)
    assert refused.value.reason == "TopologyUnsupported"


def test_an_old_cluster_has_exclusive_domains() -> None:
    assert annotations(
        in_domain(a_cluster(kubernetes_version="1.30"), exclusive=True), "Worker"
    )


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            an_engine(topology={"domain": {"nodeLabel": RACK}}),
            "domain is for a Leader with Workers",
        ),
        (
            a_gang(
                topology={
                    "domain": {
                        "nodeLabel": RACK,
                        "exclusive": True,
                        "mode": "Preferred",
                    }
                }
            ),
            "exclusive needs mode Required",
        ),
        (
            a_gang(topology={"domain": {"nodeLabel": "a b"}}),
            "nodeLabel must be the key of a node label",
        ),
        (a_gang(topology={"domain": {}}), "nodeLabel is missing"),
        (
            an_engine(topology={"deviceConstraints": [{"matchAttribute": "pcieRoot"}]}),
            "matchAttribute must be <domain>/<name>",
        ),
        (
            an_engine(topology={"computeDomain": {"channels": "Some"}}),
            "channels must be one of Single, All",
        ),
    ],
)
def test_an_invalid_stored_topology_is_refused(
    engine: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said):
        render(engine, cluster=NVLINK)


def test_a_users_annotation_does_not_move_the_domain() -> None:
    mine = {
        "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "elsewhere"}
    }
    rendered = render(
        a_gang(worker=mine, topology={"domain": {"nodeLabel": RACK, "exclusive": True}})
    )
    assert annotations(rendered, "Worker") == {
        "leaderworkerset.sigs.k8s.io/exclusive-topology": RACK
    }
    assert "exclusive-topology='elsewhere' is overwritten" in rendered.warnings[-1]


def constraints(
    *wanted: dict[str, Any], requests: Any = (GPU, NIC), **cluster: Any
) -> Any:
    """Return the constraints in the claim of a pod."""
    engine = an_engine(
        "main",
        a_member(requests=requests),
        topology={"deviceConstraints": list(wanted)},
    )
    rendered = render(engine, cluster=a_cluster(**cluster))
    return the(rendered, "resource-claim-main-standalone")["spec"]["spec"][
        "devices"
    ].get("constraints")


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_devices_agree_in_an_attribute(version: str) -> None:
    wanted = {"matchAttribute": PCIE, "requests": ["gpu", "nic"]}
    assert constraints(wanted, dra_version=version) == [wanted]


def test_without_requests_all_devices_agree() -> None:
    assert constraints({"matchAttribute": PCIE}) == [{"matchAttribute": PCIE}]


def test_a_request_that_is_not_claimed_restricts_nothing() -> None:
    plugin = {"name": "nic", "resourceName": "acme.example/nic"}
    both = {"matchAttribute": PCIE, "requests": ["gpu", "nic"]}
    assert constraints(both, requests=[GPU, plugin]) == [
        {"matchAttribute": PCIE, "requests": ["gpu"]}
    ]
    assert constraints({**both, "requests": ["nic"]}, requests=[GPU, plugin]) is None


@pytest.mark.parametrize(
    "requests",
    [(GPU,), (GPU, {"name": "nic", "resourceName": "acme.example/nic"})],
    ids=["absent", "plugin"],
)
def test_a_request_that_claims_nothing_is_named_in_a_warning(
    requests: Any,
) -> None:
    topology = {
        "deviceConstraints": [{"matchAttribute": PCIE, "requests": ["gpu", "nic"]}]
    }
    assert render(
        an_engine("main", a_member(requests=requests), topology=topology)
    ).warnings == (
        (
            "engine main, topology: deviceConstraints names 'nic', which no member "
            "claims through DRA on this cluster: it restricts nothing"
        ),
    )


def test_constraints_are_part_of_the_name_of_a_claim_template() -> None:
    def name(*wanted: dict[str, Any]) -> Any:
        engine = an_engine(
            "main",
            **({"topology": {"deviceConstraints": list(wanted)}} if wanted else {}),
        )
        return the(render(engine), "resource-claim-main-standalone")["metadata"]["name"]

    assert (
        len(
            {
                name(),
                name({"matchAttribute": PCIE}),
                name({"matchAttribute": "acme.example/numa"}),
            }
        )
        == 3
    )


def test_a_compute_domain_gives_every_pod_with_devices_a_channel() -> None:
    engine = a_gang(
        leader={"requests": ()},
        worker={"requests": [GPU]},
        topology={"computeDomain": {}},
        copies=2,
    )
    rendered = render(engine, cluster=NVLINK)
    domain = the(rendered, "compute-domain-main")
    name = domain["metadata"]["name"]
    assert (domain["apiVersion"], domain["kind"]) == (
        "resource.nvidia.com/v1beta1",
        "ComputeDomain",
    )
    assert domain["spec"] == {
        "numNodes": 0,
        "channel": {
            "allocationMode": "Single",
            "resourceClaimTemplate": {"name": name},
        },
    }
    assert pod(rendered, role="Worker")["spec"]["resourceClaims"][1:] == [
        {"name": "channel", "resourceClaimTemplateName": name}
    ]
    assert container(rendered, role="Worker")["resources"]["claims"] == [
        {"name": "devices"},
        {"name": "channel"},
    ]
    assert "resourceClaims" not in pod(rendered, role="Leader")["spec"]
    assert keys(rendered).index("compute-domain-main") < keys(rendered).index(
        "model-serving-main"
    )
    assert [path for item in rendered.objects for path in nothings(item.manifest)] == []


def test_the_spec_of_a_compute_domain_is_never_edited() -> None:
    def found(copies: int = 1, **domain: Any) -> tuple[str, Any]:
        manifest = the(
            render(
                a_gang(topology={"computeDomain": domain}, copies=copies),
                cluster=NVLINK,
            ),
            "compute-domain-main",
        )
        return manifest["metadata"]["name"], manifest["spec"]

    assert found() == found(copies=5)
    assert found(channels="All")[0] != found()[0]


def test_without_compute_domains_the_error_names_the_component_to_install() -> None:
    with pytest.raises(
        ServingStackMissing,
        match=r"topology.computeDomain needs ComputeDomain .*: set stack.computeDomains",
    ) as refused:
        render(a_gang(topology={"computeDomain": {}}))
    assert refused.value.reason == "ServingStackMissing"


def test_the_definition_of_compute_domains_without_its_driver_is_not_enough() -> None:
    facts = NVLINK.facts.model_copy(update={"missing_features": ["computeDomain"]})
    with pytest.raises(ServingStackMissing, match=r"compute-domain-default-channel"):
        render(
            a_gang(topology={"computeDomain": {}}),
            cluster=dataclasses.replace(NVLINK, facts=facts),
        )


def test_a_compute_domain_is_deleted_after_the_pods_that_use_it() -> None:
    step = step_of("compute-domain-main")
    assert step.number > step_of("model-serving-main").number
    assert (apiversions.COMPUTE_DOMAIN, "ComputeDomain") in step.kinds
