"""Admission of the topology of an engine."""

from typing import Any

import pytest

from tests.api_types.builders import (
    GANG_LEADER,
    GANG_WORKER,
    REQUEST,
    RESOLVED,
    a_deployment,
    a_document,
    a_replica,
    an_engine,
    merged,
    problems,
)

RACK = "topology.acme.example/rack"
PCIE = "resource.kubernetes.io/pcieRoot"
ENGINE = "spec.template.spec.engines[name=a]"
TOPOLOGY = f"{ENGINE}.topology"
NO_LABEL = "must be the key of a node label, such as topology.kubernetes.io/zone"


def gang(**topology: Any) -> dict[str, Any]:
    return a_deployment(an_engine(GANG_LEADER, GANG_WORKER, topology=topology))


def devices(**constraint: Any) -> dict[str, Any]:
    return a_deployment(an_engine(topology={"deviceConstraints": [constraint]}))


def in_domain(**domain: Any) -> dict[str, Any]:
    return gang(domain={"nodeLabel": RACK, **domain})


CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "every field",
        gang(
            domain={
                "nodeLabel": RACK,
                "mode": "Required",
                "exclusive": True,
                "topologyName": "racks",
            },
            deviceConstraints=[{"matchAttribute": PCIE, "requests": ["gpu"]}],
            computeDomain={"channels": "All"},
        ),
        [],
    ),
    ("an empty topology", gang(), []),
    (
        "a domain for a copy of one pod",
        a_deployment(an_engine(topology={"domain": {"nodeLabel": RACK}})),
        [
            (
                f"{TOPOLOGY}.domain: only a Leader and Worker engine has several pods "
                "in a copy; remove domain"
            )
        ],
    ),
    (
        "a label that no node can have",
        gang(domain={"nodeLabel": "in the rack"}),
        [
            (
                f'{TOPOLOGY}.domain.nodeLabel: {NO_LABEL}: "in the rack" is not a '
                "valid Kubernetes label key"
            )
        ],
    ),
    (
        "an exclusive preference",
        in_domain(exclusive=True, mode="Preferred"),
        [
            f"{TOPOLOGY}.domain.exclusive: an exclusive domain needs mode Required, got Preferred"
        ],
    ),
    (
        "an attribute without its domain",
        devices(matchAttribute="pcieRoot"),
        [
            (
                f"{TOPOLOGY}.deviceConstraints[0].matchAttribute: must be "
                f'<domain>/<name>, such as {PCIE}, got "pcieRoot"'
            )
        ],
    ),
    (
        "a request that no member has",
        devices(matchAttribute=PCIE, requests=["gpu", "nic"]),
        [
            (
                f"{TOPOLOGY}.deviceConstraints[0].requests: no member of the engine "
                'requests "nic"; its requests are: gpu'
            )
        ],
    ),
    (
        "a request twice",
        devices(matchAttribute=PCIE, requests=["gpu", "gpu"]),
        [
            (
                f'{TOPOLOGY}.deviceConstraints[0].requests: "gpu" is listed 2 times; '
                "list each request once"
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("document", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_topology_is_checked_where_it_is_written(
    document: dict[str, Any], said: list[str]
) -> None:
    assert problems(document) == said


def test_a_replica_has_no_domain_for_a_copy_of_one_pod() -> None:
    engine = {
        **a_replica()["spec"]["engines"][0],
        "topology": {"domain": {"nodeLabel": RACK}},
    }
    replica = merged(a_replica(), {"spec": {"engines": [engine]}})
    assert problems(replica) == [
        (
            "spec.engines[name=a].topology.domain: only a Leader and Worker engine "
            "has several pods in a copy; remove domain"
        )
    ]


@pytest.mark.parametrize(
    ("attribute", "fits"),
    [
        ("a.example/" + "x" * 32, True),
        ("a.example/" + "x" * 33, False),
        ("a" * 63 + "/x", True),
        ("a" * 64 + "/x", False),
        ("a.example/1x", False),
        ("a.example/", False),
        ("/x", False),
    ],
)
def test_an_attribute_has_the_syntax_of_dra(attribute: str, *, fits: bool) -> None:
    assert (problems(devices(matchAttribute=attribute)) == []) is fits


def test_a_replica_may_name_a_request_that_was_left_behind() -> None:
    """Requests that only steered placement are missing in a ModelReplica."""
    engine = {
        **a_replica()["spec"]["engines"][0],
        "topology": {
            "deviceConstraints": [{"matchAttribute": PCIE, "requests": ["nic"]}]
        },
    }
    assert RESOLVED["name"] != "nic"
    assert (
        problems(
            a_document(
                "ModelReplica",
                "qwen-1",
                {"clusterName": "eu-1", "engines": [engine]},
                namespace="ml",
            )
        )
        == []
    )


def test_requests_of_every_member_may_be_named() -> None:
    worker = merged(
        GANG_WORKER, {"nodeSelector": {"devices": [{**REQUEST, "name": "nic"}]}}
    )
    topology = {
        "deviceConstraints": [{"matchAttribute": PCIE, "requests": ["gpu", "nic"]}]
    }
    assert (
        problems(a_deployment(an_engine(GANG_LEADER, worker, topology=topology))) == []
    )
