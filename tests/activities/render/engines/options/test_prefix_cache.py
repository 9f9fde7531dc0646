"""Precise prefix caching: the picker follows the KV events of the engines."""

import json
from typing import Any

import pytest

from activities.render.inputs.findings import RoutingUnsupported
from activities.render.objects.rendered import Rendered
from activities.render.replica import InvalidSpec
from tests.activities.render.builders import (
    a_cluster,
    a_member,
    a_pair,
    an_engine,
    nothings,
    render,
    the,
)

URL = "http://render.ml-team.svc:8000"
PRECISE = {"mode": "Precise", "modelName": "acme/qwen", "tokenizerUrl": URL}
EVENTS = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": "tcp://*:5557",
    "topic": "kv@$(POD_IP):8000@acme/qwen",
}
COMMAND = ["vllm", "serve", "acme/qwen"]
WHERE = "engine main, member Standalone"


def published(change: dict[str, Any] | None = None, *more: str) -> dict[str, Any]:
    """Return a vLLM engine that publishes the events of the picker, with one change."""
    return an_engine(
        "main",
        a_member(
            command=COMMAND,
            args=["--kv-events-config", json.dumps(EVENTS | (change or {})), *more],
        ),
    )


def precise(
    *engines: dict[str, Any],
    serving_mode: str = "Unified",
    cluster: Any = None,
    **change: Any,
) -> Rendered:
    serving = {"mode": serving_mode, "prefixCache": PRECISE | change}
    return render(
        spec={
            "clusterName": "eu-1",
            "engines": list(engines or (published(),)),
            "serving": serving,
        },
        cluster=cluster,
    )


def config(rendered: Rendered) -> Any:
    return json.loads(the(rendered, "epp-config")["data"]["epp-config.yaml"])


def plugins(rendered: Rendered) -> dict[str, Any]:
    return {
        plugin["type"]: plugin.get("parameters")
        for plugin in config(rendered)["plugins"]
    }


def test_the_picker_follows_the_events_of_its_own_pods() -> None:
    rendered = precise(published(None, "--block-size=64"))
    found = plugins(rendered)
    assert "approx-prefix-cache-producer" not in found
    assert found["token-producer"] == {"modelName": "acme/qwen", "vllm": {"url": URL}}
    workload = the(rendered, "inference-pool")["spec"]["selector"]["matchLabels"][
        "modelplane.ai/serving"
    ]
    assert found["precise-prefix-cache-producer"] == {
        "tokenProcessorConfig": {"blockSize": 64},
        "speculativeIndexing": True,
        "kvEventsConfig": {
            "topicFilter": "kv@",
            "concurrency": 8,
            "discoverPods": True,
            "podDiscoveryConfig": {
                "podLabelSelector": f"modelplane.ai/serving={workload}",
                "socketPort": 5557,
            },
        },
    }
    assert found["prefix-cache-scorer"] == {
        "prefixMatchInfoProducerName": "precise-prefix-cache-producer"
    }
    (source,) = config(rendered)["dataLayer"]["sources"]
    assert source == {
        "pluginRef": "endpoint-notification-source",
        "extractors": [{"pluginRef": "precise-prefix-cache-producer"}],
    }
    assert source["pluginRef"] in found
    assert [path for item in rendered.objects for path in nothings(item.manifest)] == []


def test_another_port_is_read() -> None:
    found = plugins(precise(published({"endpoint": "tcp://*:6000"}), eventsPort=6000))
    assert (
        found["precise-prefix-cache-producer"]["kvEventsConfig"]["podDiscoveryConfig"][
            "socketPort"
        ]
        == 6000
    )


def test_events_of_sglang_have_a_format_of_their_own() -> None:
    def events(*command: str) -> Any:
        engine = an_engine(
            "main", a_member(image="acme/engine:1", command=list(command))
        )
        return plugins(precise(engine))["precise-prefix-cache-producer"][
            "kvEventsConfig"
        ].get("engineType")

    assert (
        events("python3", "-m", "sglang.launch_server"),
        events("vllm", "serve"),
        events("serve"),
    ) == ("sglang", None, None)


@pytest.mark.parametrize(
    "serving", [{}, {"prefixCache": {}}, {"prefixCache": {"mode": "Approximate"}}]
)
def test_the_picker_guesses_by_default(
    serving: dict[str, Any],
) -> None:
    found = config(
        render(
            spec={"clusterName": "eu-1", "engines": [an_engine()], "serving": serving}
        )
    )
    assert found == config(render())


def said(engine: dict[str, Any], **change: Any) -> list[str]:
    return [
        warning.removeprefix(f"{WHERE}: ")
        for warning in precise(engine, **change).warnings
        if "kv-events" in warning
    ]


def test_an_engine_that_publishes_all_needed_events_gets_no_warning() -> None:
    assert said(published()) == []
    bare = {
        key: value
        for key, value in EVENTS.items()
        if key not in ("endpoint", "publisher")
    }
    assert (
        said(
            an_engine(
                "main",
                a_member(
                    command=COMMAND, args=[f"--kv-events-config={json.dumps(bare)}"]
                ),
            )
        )
        == []
    )


def test_sglang_publishes_without_an_enabling_field() -> None:
    events = {
        key: value for key, value in EVENTS.items() if key != "enable_kv_cache_events"
    }
    command = ["python3", "-m", "sglang.launch_server"]
    assert (
        said(
            an_engine(
                "main",
                a_member(
                    command=command, args=["--kv-events-config", json.dumps(events)]
                ),
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (
            {"enable_kv_cache_events": False},
            "has no enable_kv_cache_events: true, so no events are published: add it",
        ),
        ({"publisher": "null"}, "publishes to 'null': the endpoint picker reads 'zmq'"),
        (
            {"endpoint": "tcp://*:5556"},
            (
                "publishes on port 5556, but the endpoint picker reads 5557: set "
                "eventsPort, or the endpoint"
            ),
        ),
        (
            {"topic": ""},
            "has topic '': the endpoint picker reads 'kv@$(POD_IP):8000@acme/qwen'",
        ),
        (
            {"topic": "kv@pod@qwen"},
            "has topic 'kv@pod@qwen': the endpoint picker reads 'kv@$(POD_IP):8000@acme/qwen'",
        ),
        (
            {"topic": "pod@acme/qwen"},
            "has topic 'pod@acme/qwen': the endpoint picker reads 'kv@$(POD_IP):8000@acme/qwen'",
        ),
    ],
)
def test_events_published_differently_are_a_warning(
    change: dict[str, Any], warning: str
) -> None:
    assert said(published(change)) == [f"--kv-events-config {warning}"]


def test_an_engine_that_publishes_nothing_is_a_warning_with_the_flag() -> None:
    (warning,) = said(an_engine("main", a_member(command=COMMAND)), eventsPort=6000)
    assert warning.startswith(
        "without --kv-events-config the endpoint picker never learns what is "
        "cached: add --kv-events-config {"
    )
    suggested = json.loads(warning[warning.index("{") : warning.rindex("}") + 1])
    assert suggested == EVENTS | {"endpoint": "tcp://*:6000"}
    assert (
        said(
            an_engine(
                "main",
                a_member(
                    command=COMMAND, args=["--kv-events-config", json.dumps(suggested)]
                ),
            ),
            eventsPort=6000,
        )
        == []
    )


@pytest.mark.parametrize(
    "value", ["/etc/events.json", "[" * 100_000, "[" * 2000 + "]" * 2000, "[1]", "{}"]
)
def test_an_unreadable_configuration_is_left_alone(value: str) -> None:
    assert (
        said(
            an_engine(
                "main", a_member(command=COMMAND, args=["--kv-events-config", value])
            )
        )
        == []
    )
    assert (
        said(an_engine("main", a_member(image="acme/engine:1", command=["serve"])))
        == []
    )


def test_a_pair_decides_by_the_approximate_cache() -> None:
    with pytest.raises(
        InvalidSpec,
        match=r"serving, prefixCache: mode Precise is for serving\.mode Unified",
    ):
        precise(*a_pair(), serving_mode="PrefillDecode")


def test_ranks_have_events_of_their_own_which_are_not_followed() -> None:
    with pytest.raises(
        InvalidSpec,
        match=(
            "follows one stream of events per pod, and engines have 2 ranks; use "
            "mode Approximate"
        ),
    ):
        precise({**published(), "dataParallel": {"size": 2}})


def test_plain_services_know_no_cache() -> None:
    with pytest.raises(
        RoutingUnsupported, match="prefixCache mode Precise needs an endpoint picker"
    ):
        precise(cluster=a_cluster(routing="service"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"modelName": None}, "modelName is missing"),
        ({"tokenizerUrl": None}, "tokenizerUrl is missing"),
        (
            {"tokenizerUrl": "render:8000"},
            "tokenizerUrl must be an address that begins with http:// or https://",
        ),
        (
            {"eventsPort": 8000},
            (
                "eventsPort 8000 is a port on which the engines accept requests; use "
                "another one, such as 5557"
            ),
        ),
        ({"eventsPort": 80}, "eventsPort must be between 1024 and 65535, is 80"),
        ({"mode": "Exact"}, "mode must be one of Approximate, Precise"),
    ],
)
def test_a_stored_cache_that_cannot_be_followed_is_refused(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"prefixCache: {problem}"):
        precise(**change)
