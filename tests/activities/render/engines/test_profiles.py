"""The profile of an engine determines its ports, probes, metrics and model flag."""

from typing import Any

import pytest

from activities.render.objects.rendered import Rendered
from activities.render.replica import InvalidSpec
from tests.activities.render.builders import (
    CLAIM,
    a_cluster,
    a_member,
    an_engine,
    container,
    render,
    the,
)


def rendered(profile: dict[str, Any], image: str = "vllm/vllm-openai") -> Rendered:
    engine = an_engine("main", {**a_member(image=image), "probes": {"liveness": {}}})
    return render({**engine, "profile": profile} if profile else engine)


def probe_paths(found: Rendered) -> set[tuple[str, int]]:
    engine = container(found)
    return {
        (probe["httpGet"]["path"], probe["httpGet"]["port"])
        for name, probe in engine.items()
        if name.endswith("Probe")
    }


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("vllm/vllm-openai", "/health"),
        ("nvcr.io/nim/meta/llama-3.1-8b-instruct", "/v1/health/ready"),
        ("nvcr.io/nvidia/tritonserver", "/v2/health/ready"),
        ("ollama/ollama", "/api/version"),
    ],
)
def test_probes_use_the_health_path_of_the_profile(image: str, path: str) -> None:
    assert probe_paths(rendered({}, image)) == {(path, 8000)}


def test_another_port_is_that_of_pods_probes_and_pool() -> None:
    found = rendered({"port": 11434, "healthPath": "/up"})
    assert probe_paths(found) == {("/up", 11434)}
    assert container(found)["ports"] == [{"name": "http", "containerPort": 11434}]
    pool = the(found, "inference-pool")
    assert pool["spec"]["targetPorts"] == [{"number": 11434}]


def test_a_plain_service_leads_to_the_port_of_the_profile() -> None:
    engine = an_engine(profile={"port": 9000})
    found = render(engine, cluster=a_cluster(routing="service"))
    assert the(found, "model-service")["spec"]["ports"] == [
        {"name": "http", "port": 8000, "targetPort": 9000}
    ]


def metrics(found: Rendered) -> list[tuple[str, str]]:
    monitor = the(found, "monitor-engines")
    return [
        (endpoint["port"], endpoint["path"])
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
    ]


def test_prometheus_and_the_picker_read_the_metrics_of_the_profile() -> None:
    found = rendered({}, "nvcr.io/nvidia/tensorrt-llm/release")
    assert metrics(found) == [("http", "/prometheus/metrics")]
    config = the(found, "epp-config")["data"]["epp-config.yaml"]
    assert '"type": "metrics-data-source"' in config
    assert '"path": "/prometheus/metrics"' in config


def test_metrics_on_another_port_have_a_port_of_the_container() -> None:
    found = rendered({}, "nvcr.io/nvidia/tritonserver")
    assert {"name": "metrics", "containerPort": 8002} in container(found)["ports"]
    assert metrics(found) == [("metrics", "/metrics")]
    picker = the(found, "epp")["spec"]["template"]["spec"]["containers"][0]
    assert "--model-server-metrics-port=8002" in picker["args"]


def test_an_engine_without_metrics_is_not_scraped() -> None:
    keys = {item.key for item in rendered({}, "ollama/ollama").objects}
    assert "monitor-engines" not in keys
    assert "monitor-epp" in keys


@pytest.mark.parametrize(
    ("image", "profile", "args"),
    [
        ("acme/engine", {}, ["--model=/mnt/models"]),
        (
            "ghcr.io/huggingface/text-generation-inference",
            {},
            ["--model-id=/mnt/models"],
        ),
        ("ollama/ollama", {}, None),
        ("acme/engine", {"modelFlag": ""}, None),
        ("acme/engine", {"modelFlag": "--weights"}, ["--weights=/mnt/models"]),
    ],
)
def test_the_flag_for_the_cache_is_that_of_the_profile(
    image: str, profile: dict[str, str], args: list[str] | None
) -> None:
    engine = an_engine("main", a_member(image=image), profile=profile)
    found = render(engine, cache="qwen", cache_claim=CLAIM)
    assert container(found).get("args") == args


def test_an_unreadable_profile_is_rejected_with_its_field() -> None:
    with pytest.raises(InvalidSpec) as caught:
        render(an_engine(profile={"port": 0}))
    assert "engine main: profile.port" in str(caught.value)
