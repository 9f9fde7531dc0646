"""Data parallelism within a pod, and requests that wait in the picker."""

import dataclasses
import json
from typing import Any

import pytest

from activities.render.inputs.findings import RoutingUnsupported, ServingStackMissing
from activities.render.objects.rendered import Rendered
from activities.render.replica import InvalidSpec
from api_types.resources.parts.probes import FIRST_RANK_ONLY
from tests.activities.render.builders import (
    a_cluster,
    a_gang,
    a_member,
    a_pair,
    an_engine,
    container,
    nothings,
    pod,
    render,
    the,
)


def wide(size: int, **members: Any) -> Rendered:
    """Return a pair of engines with this number of ranks per pod."""
    return render(
        *({**engine, "dataParallel": {"size": size}} for engine in a_pair(**members)),
        mode="PrefillDecode",
    )


def ports(rendered: Rendered) -> list[int]:
    return [
        port["number"]
        for port in the(rendered, "inference-pool")["spec"]["targetPorts"]
    ]


def opened(found: Any) -> list[tuple[str, int]]:
    return [(port["name"], port["containerPort"]) for port in found["ports"]]


def sidecar(rendered: Rendered) -> Any:
    return pod(rendered, "alpha")["spec"]["initContainers"][0]


@pytest.mark.parametrize("size", [1, 2, 8])
def test_every_rank_is_a_port_of_the_pool(size: int) -> None:
    assert ports(render(an_engine(dataParallel={"size": size}))) == list(
        range(8000, 8000 + size)
    )


def test_a_cluster_whose_pools_have_one_port_is_refused_with_the_needed_version() -> (
    None
):
    known = a_cluster()
    facts = known.facts.model_copy(update={"missing_features": ["dataParallel"]})
    one_port = dataclasses.replace(known, facts=facts)
    with pytest.raises(
        ServingStackMissing,
        match=r"dataParallel needs InferencePool .* with several targetPorts: install "
        r"the definitions of the Gateway API Inference Extension v1.1.0 or newer",
    ):
        render(an_engine(dataParallel={"size": 2}), cluster=one_port)
    assert ports(render(cluster=one_port)) == [8000]


def test_one_rank_is_an_engine_without_ranks() -> None:
    alone, without = render(an_engine(dataParallel={"size": 1})), render()
    assert (container(alone), ports(alone)) == (container(without), ports(without))


def test_only_serving_pods_open_a_port_for_every_rank() -> None:
    rendered = render(a_gang(dataParallel={"size": 2}))
    assert opened(container(rendered, role="Leader")) == [
        ("http", 8000),
        ("http-1", 8001),
    ]
    assert "ports" not in container(rendered, role="Worker")
    assert container(rendered)["readinessProbe"]["httpGet"]["port"] == 8000


def test_the_sidecar_stands_before_every_rank_of_the_decode_engine() -> None:
    rendered = wide(3)
    assert sidecar(rendered)["args"][-2:] == [
        "--vllm-port=8200",
        "--data-parallel-size=3",
    ]
    assert opened(sidecar(rendered)) == [
        ("proxy", 8000),
        ("proxy-1", 8001),
        ("proxy-2", 8002),
    ]
    assert [variable["name"] for variable in sidecar(rendered)["env"]] == ["POD_IP"]
    assert opened(container(rendered, "alpha")) == [
        ("http", 8200),
        ("http-1", 8201),
        ("http-2", 8202),
    ]
    assert opened(container(rendered, "beta")) == [
        ("http", 8000),
        ("http-1", 8001),
        ("http-2", 8002),
    ]
    assert ports(rendered) == [8000, 8001, 8002]
    assert [path for item in rendered.objects for path in nothings(item.manifest)] == []


def test_without_ranks_the_sidecar_gets_no_rank_flag() -> None:
    rendered = wide(1)
    assert "data-parallel" not in repr(sidecar(rendered))
    assert "--vllm-port=8001" in sidecar(rendered)["args"]


def test_a_decode_port_that_does_not_overlap_the_sidecars_is_kept() -> None:
    assert opened(container(wide(2, decode={"args": ["--port=8002"]}), "alpha")) == [
        ("http", 8002),
        ("http-1", 8003),
    ]


def script(port: str) -> dict[str, Any]:
    """Return a member that starts each rank in a script."""
    return {
        "command": ["sh", "-c"],
        "args": [
            f"for rank in 0 1; do vllm serve /mnt/models --port={port} --rank=$rank & done; wait -n"
        ],
    }


@pytest.mark.parametrize(
    "port",
    ["$((8300 + rank))", "$((8300+rank))", '"$((8300 + rank))"', "$(( 8300+$rank ))"],
)
def test_a_script_may_add_the_rank_to_the_port(port: str) -> None:
    rendered = wide(2, decode=script(port), prefill=script(port.replace("83", "80")))
    assert opened(container(rendered, "alpha")) == [("http", 8300), ("http-1", 8301)]
    assert rendered.warnings == ()


def test_a_computed_port_is_one_of_ranks_only_with_ranks_and_in_a_script() -> None:
    assert "is not a number" in wide(1, decode=script("$((8300 + rank))")).warnings[0]
    assert (
        "is not a number"
        in wide(2, decode={"args": ["--port=$((8300 + rank))"]}).warnings[0]
    )
    assert "is not a number" in wide(2, decode=script("$((8300 * rank))")).warnings[0]
    assert (
        "--port is 9000, but requests go to 8000"
        in wide(2, decode=script("8300"), prefill=script("$((9000 + rank))")).warnings[
            0
        ]
    )


@pytest.mark.parametrize("port", [7999, 8000, 8001])
def test_a_decode_port_of_the_sidecars_ranks_is_refused(port: int) -> None:
    with pytest.raises(
        InvalidSpec,
        match=rf"--port {port} is taken by the sidecar: use 8200 or leave it out",
    ):
        wide(2, decode={"args": [f"--port={port}"]})


def test_engines_of_one_pool_have_the_same_ranks() -> None:
    with pytest.raises(
        InvalidSpec,
        match=(
            r"engines have different dataParallel\.size \(a: 1, b: 4\), yet share one "
            r"pool: set the same size and loadBalancing for all"
        ),
    ):
        render(an_engine("a"), an_engine("b", dataParallel={"size": 4}))


@pytest.mark.parametrize("size", [0, 9, "two"])
def test_an_invalid_stored_number_of_ranks_is_refused(size: Any) -> None:
    with pytest.raises(InvalidSpec, match="dataParallel: size must be"):
        render(an_engine(dataParallel={"size": size}))


def waiting(**limits: Any) -> Any:
    spec = {
        "clusterName": "eu-1",
        "engines": [an_engine("main", a_member())],
        "serving": {"flowControl": limits},
    }
    return json.loads(the(render(spec=spec), "epp-config")["data"]["epp-config.yaml"])


def test_requests_wait_in_the_picker_within_the_limits() -> None:
    config = waiting(maxRequests=500, queueSeconds=30)
    assert (config["featureGates"], config["flowControl"]) == (
        ["flowControl"],
        {"maxRequests": "500", "defaultRequestTTL": "30s"},
    )


def test_without_limits_the_pickers_own_apply() -> None:
    config = waiting()
    assert config["featureGates"] == ["flowControl"]
    assert "flowControl" not in config


def test_without_flow_control_nothing_is_gated() -> None:
    assert "featureGates" not in json.loads(
        the(render(), "epp-config")["data"]["epp-config.yaml"]
    )


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({"engines": [an_engine(dataParallel={"size": 2})]}, "dataParallel"),
        ({"engines": [an_engine()], "serving": {"flowControl": {}}}, "flowControl"),
    ],
)
def test_plain_services_have_neither(spec: dict[str, Any], needs: str) -> None:
    with pytest.raises(
        RoutingUnsupported,
        match=f"cluster eu-1 routes to plain Services, and {needs} needs an endpoint picker",
    ):
        render(
            spec={"clusterName": "eu-1", **spec}, cluster=a_cluster(routing="service")
        )


BEYOND = (
    r"member Standalone: --port must be between 1 and 65528, so that each of 8 ranks "
    r"has a port, is {}"
)


@pytest.mark.parametrize("port", ["65529", "65530", "70000", "0", "9" * 30])
def test_every_rank_of_a_decode_engine_has_a_port(port: str) -> None:
    with pytest.raises(InvalidSpec, match=f"engine alpha, {BEYOND.format(port)}$"):
        wide(8, decode={"args": [f"--port={port}"]})
    assert opened(container(wide(8, decode={"args": ["--port=65528"]}), "alpha"))[
        -1
    ] == ("http-7", 65535)


def test_every_rank_of_a_unified_engine_has_a_port() -> None:
    with pytest.raises(InvalidSpec, match=f"engine main, {BEYOND.format(65530)}$"):
        render(
            an_engine("main", a_member(args=["--port=65530"]), dataParallel={"size": 8})
        )
    for port, ranks in ((65528, 8), (70000, 1)):
        engine = an_engine(
            "main", a_member(args=[f"--port={port}"]), dataParallel={"size": ranks}
        )
        assert "but requests go to 8000" in render(engine).warnings[0]


def test_liveness_of_several_ranks_names_the_ranks_that_it_does_not_probe() -> None:
    def said(size: int, **probes: Any) -> tuple[str, ...]:
        return render(
            an_engine(
                "main", {**a_member(), "probes": probes}, dataParallel={"size": size}
            )
        ).warnings

    assert said(2, liveness={}) == (f"engine main, probes: {FIRST_RANK_ONLY}",)
    assert said(1, liveness={}) == said(2, startupSeconds=60) == said(2) == ()
