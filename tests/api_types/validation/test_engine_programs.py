"""Flags and variables of engines are checked beyond the cases of the public corpus."""

from typing import Any

import pytest

from tests.api_types.builders import a_document, merged
from tests.api_types.engines.test_corpus import verdict

VLLM = {"name": "engine", "image": "vllm/vllm-openai:v0.14.1"}


def a_member(devices: int = 8, role: str = "", **container: Any) -> dict[str, Any]:
    member: dict[str, Any] = {
        "template": {"spec": {"containers": [{**VLLM, **container}]}}
    }
    if devices:
        requests = [{"name": "gpu", "count": devices, "selectors": [{"cel": "true"}]}]
        member["nodeSelector"] = {"devices": requests}
    return {"role": role, **member} if role else member


def judged(*members: dict[str, Any], **engine: Any) -> tuple[str, str]:
    document = a_document(
        "ModelDeployment",
        namespace="ml",
        spec={
            "replicas": 1,
            "template": {
                "spec": {
                    "engines": [{"name": "main", "members": list(members), **engine}]
                }
            },
        },
    )
    return verdict(document)


def a_gang(nodes: int, leader: int = 8, **container: Any) -> list[dict[str, Any]]:
    return [
        a_member(leader, "Leader", **container),
        merged(a_member(8, "Worker"), {"worker": {"nodes": nodes}}),
    ]


def test_a_group_has_the_devices_of_all_its_pods() -> None:
    args = ["--tensor-parallel-size=8", "--pipeline-parallel-size=3"]
    assert judged(*a_gang(2, args=args)) == ("ok", "")
    found, text = judged(*a_gang(1, args=args))
    assert found == "refused"
    assert "needs 24 devices, and a copy has 16" in text


def test_devices_are_not_counted_if_a_member_requests_none() -> None:
    args = ["--tensor-parallel-size=64"]
    assert judged(*a_gang(1, leader=0, args=args)) == ("ok", "")


@pytest.mark.parametrize(("local", "found"), [(8, "ok"), (16, "refused")])
def test_local_ranks_use_the_devices_of_one_pod(local: int, found: str) -> None:
    args = ["--data-parallel-size=16", f"--data-parallel-size-local={local}"]
    assert judged(*a_gang(1, args=args))[0] == found


def test_ranks_in_other_processes_are_not_counted() -> None:
    args = ["--data-parallel-size=32", "--data-parallel-rank=0"]
    assert judged(a_member(1, args=args)) == ("ok", "")


@pytest.mark.parametrize("nodes", [2, 3])
def test_nnodes_is_the_number_of_pods_of_a_copy(nodes: int) -> None:
    args = ["--nnodes=3", "--tensor-parallel-size=8"]
    found, text = judged(*a_gang(nodes, args=args))
    assert found == ("ok" if nodes == 2 else "refused")
    assert ("--nnodes is 3, and a copy has 4 pods" in text) == (nodes == 3)


@pytest.mark.parametrize(
    ("container", "found"),
    [
        ({"args": ["--port=9000"]}, "refused"),
        ({"args": ["--port=$(PORT)"]}, "ok"),
        ({"command": ["/start.sh"], "args": ["--port=9000"]}, "warning"),
        ({"command": ["sh", "-c", "nginx & vllm serve m --port 9000"]}, "warning"),
        ({"command": ["vllm", "serve", "m", "--port", "9000"]}, "refused"),
        ({"image": "acme/engine", "args": ["--port=9000"]}, "warning"),
    ],
    ids=["a flag", "a variable", "a script", "a shell", "a command", "another engine"],
)
def test_a_wrong_port_is_refused_only_if_the_engine_certainly_reads_it(
    container: dict[str, Any], found: str
) -> None:
    assert judged(a_member(**container))[0] == found


@pytest.mark.parametrize(
    ("drain", "found"),
    [
        ({"graceSeconds": 60}, "warning"),
        ({"graceSeconds": 60, "preStopSeconds": 30}, "ok"),
    ],
)
def test_a_grace_period_without_a_sleep_helps_only_engines_that_finish_requests(
    drain: dict[str, int], found: str
) -> None:
    assert judged(a_member(), drain=drain)[0] == found
    finishing = {"finishesRequests": True}
    assert judged(a_member(), drain=drain, profile=finishing)[0] == "ok"


def a_pair(**ports: dict[str, Any]) -> dict[str, Any]:
    engines = [
        {"name": phase.lower(), "phase": phase, "members": [a_member(**ports[phase])]}
        for phase in ("Prefill", "Decode")
    ]
    spec = {"serving": {"mode": "PrefillDecode"}, "engines": engines}
    return a_document(
        "ModelDeployment",
        namespace="ml",
        spec={"replicas": 1, "template": {"spec": spec}},
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [
        ({"args": ["--port=8000"]}, {"args": ["--port=8200"]}, "ok"),
        ({"args": ["--port=8100"]}, {"args": ["--port=8200"]}, "refused"),
        ({}, {"args": ["--port=8000"]}, "refused"),
    ],
    ids=["as the sidecar sends", "another port of Prefill", "the port of the sidecar"],
)
def test_ports_of_a_pair_are_those_that_the_sidecar_uses(
    prefill: dict[str, Any], decode: dict[str, Any], found: str
) -> None:
    assert verdict(a_pair(Prefill=prefill, Decode=decode))[0] == found


def test_engines_of_one_pool_have_one_port() -> None:
    document = a_document(
        "ModelDeployment",
        namespace="ml",
        spec={
            "replicas": 1,
            "template": {
                "spec": {
                    "engines": [
                        {"name": "a", "members": [a_member()]},
                        {
                            "name": "b",
                            "profile": {"name": "Custom", "port": 9000},
                            "members": [a_member()],
                        },
                    ]
                }
            },
        },
    )
    found, text = verdict(document)
    assert found == "refused"
    assert "engines have different ports (a: 8000, b: 9000)" in text


def test_every_rank_has_a_port() -> None:
    found, text = judged(
        a_member(),
        profile={"name": "Custom", "port": 65530},
        dataParallel={"size": 8},
    )
    assert found == "refused"
    assert "leaves no port for each of 8 ranks; use at most 65528" in text
