"""Picker, pool and route."""

import json
from itertools import product
from typing import Any

import pytest

from activities.render.inputs.findings import RoutingUnsupported
from activities.render.objects.edge import blocking_rule, header_filters
from activities.render.replica import InvalidSpec
from api_types.pins import apiversions
from api_types.validation.picker_flags import PLATFORM_FLAGS
from tests.activities.render.builders import (
    a_cluster,
    a_member,
    an_engine,
    keys,
    pod,
    render,
    render_pair,
    the,
)

W = "qwen3-8b-1a2b3-3726121d"
PICKER_KEYS = {
    "epp",
    "epp-service",
    "epp-config",
    "epp-serviceaccount",
    "epp-role",
    "epp-rolebinding",
    "inference-pool",
}


PARSERS = (
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "passthrough-parser",
)


def config(rendered: Any) -> Any:
    return json.loads(the(rendered, "epp-config")["data"]["epp-config.yaml"])


def plugins(rendered: Any) -> dict[str, Any]:
    return {
        plugin["type"]: plugin.get("parameters")
        for plugin in config(rendered)["plugins"]
    }


def picker(rendered: Any) -> Any:
    return the(rendered, "epp")["spec"]["template"]


def test_the_picker_of_a_pair_has_two_profiles_and_never_turns_disaggregation_off() -> (
    None
):
    rendered = render_pair()
    assert config(rendered)["apiVersion"] == "llm-d.ai/v1alpha1"
    assert config(rendered)["kind"] == "EndpointPickerConfig"
    producer = {
        "autoTune": False,
        "blockSizeTokens": 16,
        "maxPrefixBlocksToMatch": 256,
        "lruCapacityPerServer": 31250,
    }
    assert list(plugins(rendered).items()) == [
        ("approx-prefix-cache-producer", producer),
        ("prefix-cache-scorer", None),
        ("disagg-headers-handler", None),
        ("queue-scorer", None),
        ("kv-cache-utilization-scorer", None),
        ("prefill-filter", None),
        ("decode-filter", None),
        ("max-score-picker", None),
        *((parser, None) for parser in PARSERS),
        ("prefix-based-pd-decider", {"nonCachedTokens": 16}),
        (
            "disagg-profile-handler",
            {"deciders": {"prefill": "prefix-based-pd-decider"}},
        ),
    ]
    scorers = [
        {"pluginRef": "prefix-cache-scorer", "weight": 3},
        {"pluginRef": "queue-scorer", "weight": 3},
        {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
    ]
    assert config(rendered)["schedulingProfiles"] == [
        {
            "name": role,
            "plugins": [
                {"pluginRef": f"{role}-filter"},
                {"pluginRef": "max-score-picker"},
                *scorers,
            ],
        }
        for role in ("prefill", "decode")
    ]
    assert "prepareDataPlugins" not in repr(config(rendered))


def test_a_unified_replica_has_a_picker_with_one_profile_and_neither_roles_nor_a_sidecar() -> (
    None
):
    rendered = render()
    assert set(keys(rendered)) >= PICKER_KEYS
    assert (
        the(rendered, "inference-pool")["spec"]["endpointPickerRef"]["failureMode"]
        == "FailOpen"
    )
    assert "llm-d.ai/role" not in pod(rendered, "main")["metadata"]["labels"]
    assert [each["name"] for each in pod(rendered, "main")["spec"]["containers"]] == [
        "engine"
    ]
    assert "initContainers" not in pod(rendered, "main")["spec"]
    assert list(plugins(rendered)) == [
        "approx-prefix-cache-producer",
        "prefix-cache-scorer",
        "queue-scorer",
        "kv-cache-utilization-scorer",
        "max-score-picker",
        *PARSERS,
    ]
    assert [profile["name"] for profile in config(rendered)["schedulingProfiles"]] == [
        "default"
    ]


def test_the_kv_cache_scorer_is_an_option() -> None:
    without = render(settings={"epp_kv_cache_weight": 0})
    assert "kv-cache-utilization-scorer" not in json.dumps(config(without))
    rendered = render(settings={"epp_kv_cache_weight": 5})
    assert {"pluginRef": "kv-cache-utilization-scorer", "weight": 5} in config(
        rendered
    )["schedulingProfiles"][0]["plugins"]


def test_load_outweighs_a_cached_prefix() -> None:
    weights = {
        plugin["pluginRef"]: plugin["weight"]
        for plugin in config(render())["schedulingProfiles"][0]["plugins"]
        if "weight" in plugin
    }
    prefix = weights.pop("prefix-cache-scorer")
    assert prefix < sum(weights.values())


@pytest.mark.parametrize("rendered", [render(), render_pair()], ids=["one", "pair"])
def test_the_last_parser_accepts_every_path(rendered: Any) -> None:
    assert config(rendered)["requestHandler"] == {
        "parsers": [{"pluginRef": parser} for parser in PARSERS]
    }
    assert PARSERS[-1] == "passthrough-parser"


@pytest.mark.parametrize(
    ("member", "tokens", "source", "warned"),
    [
        pytest.param(
            {"args": ["--block-size", "32"]},
            32,
            "--block-size in args",
            False,
            id="two words",
        ),
        pytest.param(
            {"args": ["--page-size=64"]},
            64,
            "--page-size in args",
            False,
            id="one word",
        ),
        pytest.param(
            {"args": ["--block_size", "32"]},
            32,
            "--block_size in args",
            False,
            id="underscores",
        ),
        pytest.param({"args": ["--block-size=auto"]}, 16, "default", False, id="auto"),
        pytest.param({}, 16, "default", False, id="nothing"),
        pytest.param({"args": ["--block-size=0"]}, 16, "default", True, id="zero"),
        pytest.param(
            {"args": ["--block-size=1025"]}, 16, "default", True, id="too large"
        ),
        pytest.param(
            {"args": ["--block-size", "9" * 5000]},
            16,
            "default",
            True,
            id="too long",
        ),
        pytest.param({"args": ["--block-size"]}, 16, "default", False, id="no value"),
        pytest.param(
            {
                "command": ["bash", "-c"],
                "args": [
                    "python3 -m sglang.launch_server --enable-metrics --page-size 32 &"
                ],
            },
            32,
            "--page-size in shell text",
            False,
            id="shell text",
        ),
    ],
)
def test_the_picker_counts_in_the_engines_blocks(
    member: dict[str, Any], tokens: int, source: str, *, warned: bool
) -> None:
    rendered = render(an_engine("main", a_member(**member)))
    assert (
        plugins(rendered)["approx-prefix-cache-producer"]["blockSizeTokens"] == tokens
    )
    assert (
        rendered.engines[0].kv_block_size,
        rendered.engines[0].kv_block_size_source,
    ) == (tokens, source)
    assert bool(rendered.warnings) is warned


def test_the_block_size_follows_the_first_engine_or_decode() -> None:
    first, second = (
        an_engine(name, a_member(args=[f"--block-size={size}"]))
        for name, size in (("one", 32), ("two", 64))
    )
    assert (
        plugins(render(first, second))["approx-prefix-cache-producer"][
            "blockSizeTokens"
        ]
        == 32
    )
    pair = render_pair(
        decode={"args": ["--block-size=64"]}, prefill={"args": ["--block-size=32"]}
    )
    assert plugins(pair)["approx-prefix-cache-producer"]["blockSizeTokens"] == 64


def test_a_changed_block_size_rolls_the_picker_and_nothing_else_of_the_surface() -> (
    None
):
    before, after = (
        render(),
        render(an_engine("main", a_member(args=["--block-size=32"]))),
    )
    checksum = "modelplane.ai/epp-config-checksum"
    assert plugins(after)["approx-prefix-cache-producer"]["blockSizeTokens"] == 32
    # The annotation is in the template of its pods. An equal spec has an equal
    # annotation.
    assert picker(before) == picker(render())
    assert (
        picker(before)["metadata"]["annotations"][checksum]
        != picker(after)["metadata"]["annotations"][checksum]
    )
    for key in ("inference-pool", "model-route", "epp-service"):
        assert the(before, key) == the(after, key)


def test_one_pod_already_has_a_pool_and_no_service_but_the_pickers() -> None:
    rendered = render()
    assert set(keys(rendered)) >= PICKER_KEYS | {"model-route"}
    services = [
        item.manifest["metadata"]["name"]
        for item in rendered.objects
        if item.manifest["kind"] == "Service"
    ]
    assert services == [f"{W}-epp-grpc"]


@pytest.mark.parametrize("rendered", [render(), render_pair()], ids=["unified", "pair"])
def test_the_pool_holds_every_serving_pod_of_either_role(rendered: Any) -> None:
    pool = the(rendered, "inference-pool")
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1"
    assert pool["metadata"]["name"] == f"{W}-pool"
    assert pool["spec"] == {
        "selector": {"matchLabels": {"modelplane.ai/serving": W}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {
            "name": f"{W}-epp-grpc",
            "port": {"number": 9002},
            "failureMode": "FailOpen",
        },
    }


def test_the_route_strips_its_prefix_and_never_times_out() -> None:
    route = the(render(), "model-route")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["metadata"]["name"] == W
    assert route["spec"] == {
        "parentRefs": [{"name": "inference-gateway", "namespace": "modelplane-system"}],
        "rules": [
            {
                "matches": [
                    {
                        "path": {
                            "type": "PathPrefix",
                            "value": "/ml-team/qwen3-8b-1a2b3/",
                        }
                    }
                ],
                "filters": [
                    {
                        "type": "URLRewrite",
                        "urlRewrite": {
                            "path": {
                                "type": "ReplacePrefixMatch",
                                "replacePrefixMatch": "/",
                            }
                        },
                    }
                ],
                "timeouts": {"request": "0s"},
                "backendRefs": [
                    {
                        "group": "inference.networking.k8s.io",
                        "kind": "InferencePool",
                        "name": f"{W}-pool",
                    }
                ],
            },
            blocking_rule("/ml-team/qwen3-8b-1a2b3"),
        ],
    }


def test_blocked_paths_have_no_backend() -> None:
    assert blocking_rule("/ml-team/qwen").keys() == {"matches"}


def test_the_picker_is_probed_bounded_and_allowed_what_it_reads() -> None:
    rendered = render()
    pod = picker(rendered)
    container = pod["spec"]["containers"][0]
    assert container["args"] == [
        f"--pool-name={W}-pool",
        "--pool-namespace=ml-team",
        "--pool-group=inference.networking.k8s.io",
        "--config-file=/config/epp-config.yaml",
        "--grpc-port=9002",
        "--zap-encoder=json",
        "--tracing=false",
        "--metrics-endpoint-auth=false",
    ]
    assert container["readinessProbe"] == {
        "grpc": {"port": 9003, "service": "inference-extension"},
        "periodSeconds": 2,
    }
    assert container["livenessProbe"]["grpc"] == {
        "port": 9003,
        "service": "inference-extension",
    }
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"memory": "4Gi"},
    }
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "grpc": 9002,
        "grpc-health": 9003,
        "metrics": 9090,
    }
    assert pod["metadata"]["labels"] == {"app": f"{W}-epp"}
    rights = {
        (group, resource)
        for rule in the(rendered, "epp-role")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert rights == {
        ("", "pods"),
        ("inference.networking.k8s.io", "inferencepools"),
        ("inference.networking.x-k8s.io", "inferenceobjectives"),
        ("inference.networking.x-k8s.io", "inferencemodelrewrites"),
        ("llm-d.ai", "inferenceobjectives"),
        ("llm-d.ai", "inferencemodelrewrites"),
    }
    assert the(rendered, "epp-service")["spec"] == {
        "clusterIP": "None",
        "selector": {"app": f"{W}-epp"},
        "ports": [
            {
                "name": "grpc-ext-proc",
                "port": 9002,
                "targetPort": 9002,
                "appProtocol": "http2",
            },
            {"name": "metrics", "port": 9090, "targetPort": 9090},
        ],
    }


def test_a_new_picker_is_known_to_gateways_before_an_old_one_stops() -> None:
    spec = the(render(), "epp")["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert spec["minReadySeconds"] == 40


def test_an_old_picker_leaves_after_the_longest_generation() -> None:
    settings = {"longest_generation": 600}
    spec = picker(render(settings=settings))["spec"]
    sleep = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert (sleep, spec["terminationGracePeriodSeconds"]) == (600, 675)
    old = picker(
        render(cluster=a_cluster(kubernetes_version="1.29"), settings=settings)
    )["spec"]
    assert "lifecycle" not in old["containers"][0]


def test_several_pickers_serve_together_on_different_nodes_within_a_budget() -> None:
    rendered = render(settings={"epp_replicas": 2})
    assert the(rendered, "epp")["spec"]["replicas"] == 2
    labels = {"app": f"{W}-epp"}
    spread = picker(rendered)["spec"]["topologySpreadConstraints"]
    assert [each["labelSelector"] for each in spread] == [{"matchLabels": labels}]
    assert the(rendered, "epp-budget")["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": labels},
    }
    # The standby of a leader election is never ready, so the pickers have none.
    (container,) = picker(rendered)["spec"]["containers"]
    assert container == picker(render())["spec"]["containers"][0]


def test_a_single_picker_has_no_budget_which_would_block_node_drains() -> None:
    assert "epp-budget" not in keys(render())
    assert "topologySpreadConstraints" not in picker(render())["spec"]


def test_extra_picker_flags_are_sorted_and_cannot_replace_ours() -> None:
    flags = {"v": "4", "kv-cache-usage-percentage-metric": "x"}
    args = picker(
        render(
            picker_flags=flags, settings={"epp_extra_flags": {"drain-timeout": "9s"}}
        )
    )["spec"]["containers"][0]["args"]
    assert args[-3:] == [
        "--drain-timeout=9s",
        "--kv-cache-usage-percentage-metric=x",
        "--v=4",
    ]
    with pytest.raises(
        InvalidSpec, match="endpoint picker: flag --pool-name is set by the platform"
    ):
        render(picker_flags={"pool-name": "theirs"})


def test_the_flags_of_the_operator_win_over_those_of_a_deployment() -> None:
    operator = {"epp_extra_flags": {"v": "2", "lora-info-metric": "y"}}
    rendered = render(
        picker_flags={"v": "4", "lora-info-metric": "y"}, settings=operator
    )
    assert picker(rendered)["spec"]["containers"][0]["args"][-2:] == [
        "--lora-info-metric=y",
        "--v=2",
    ]
    assert rendered.warnings == (
        (
            "endpoint picker: flag --v=4 of modelplane.ai/epp-extra-flags has no "
            "effect: the setting epp.extraFlags has '2'"
        ),
    )


def test_the_operator_cannot_replace_rendered_flags_but_may_set_others() -> None:
    with pytest.raises(
        InvalidSpec,
        match="endpoint picker: flag --pool-name is set by the platform and cannot be given again",
    ):
        render(settings={"epp_extra_flags": {"pool-name": "theirs"}})
    args = picker(render(settings={"epp_extra_flags": {"enable-pprof": "false"}}))[
        "spec"
    ]["containers"][0]["args"]
    assert "--enable-pprof=false" in args


def test_every_rendered_flag_belongs_to_the_platform_under_all_settings() -> None:
    for auth, tracing, replicas in product((True, False), (True, False), (1, 2)):
        settings = {
            "epp_metrics_auth": auth,
            "tracing_enabled": tracing,
            "epp_replicas": replicas,
        }
        args = picker(render(settings=settings))["spec"]["containers"][0]["args"]
        assert {
            word.partition("=")[0].removeprefix("--") for word in args
        } <= PLATFORM_FLAGS


def test_a_cluster_without_pools_routes_to_a_plain_service() -> None:
    rendered = render(cluster=a_cluster(routing="service"))
    service = the(rendered, "model-service")
    assert service["metadata"]["name"] == W
    assert service["spec"] == {
        "selector": {"modelplane.ai/serving": W},
        "ports": [{"name": "http", "port": 8000, "targetPort": 8000}],
    }
    of_rule, of_backend = header_filters()
    rule, blocking = the(rendered, "model-route")["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": W, "port": 8000, "filters": [of_backend]}]
    assert [each["type"] for each in rule["filters"]] == [
        "RequestHeaderModifier",
        "URLRewrite",
    ]
    assert rule["filters"][0] == of_rule
    assert blocking == blocking_rule("/ml-team/qwen3-8b-1a2b3")
    assert PICKER_KEYS.isdisjoint(keys(rendered))
    assert rendered.routing is not None
    assert rendered.routing.surface == "service"


def test_a_pair_needs_a_picker() -> None:
    with pytest.raises(
        RoutingUnsupported,
        match="cluster eu-1 routes to plain Services, and PrefillDecode needs an endpoint picker",
    ) as caught:
        render_pair(cluster=a_cluster(routing="service"))
    assert caught.value.reason == "RoutingUnsupported"


@pytest.mark.parametrize(
    ("provider", "settings", "present"),
    [
        pytest.param(
            "none",
            {"monitoring_enabled": False},
            set(),
            id="none, monitoring off",
        ),
        pytest.param("istio", {}, {"epp-destinationrule"}, id="istio"),
        pytest.param(
            "gke",
            {"epp_metrics_auth": True},
            {"epp-clusterrole", "epp-clusterrolebinding"},
            id="gke with auth",
        ),
        pytest.param(
            "none",
            {"epp_metrics_auth": True},
            {"epp-clusterrole", "epp-clusterrolebinding", "epp-metrics-token"},
            id="others with auth",
        ),
        pytest.param(
            "none",
            {"epp_metrics_auth": True, "monitoring_enabled": False},
            {"epp-clusterrole", "epp-clusterrolebinding"},
            id="auth without a scraper",
        ),
    ],
)
def test_mesh_objects_and_metrics_rbac_exist_only_where_needed(
    provider: str, settings: dict[str, Any], present: set[str]
) -> None:
    rendered = render(cluster=a_cluster(mesh_provider=provider), settings=settings)
    optional = {
        "epp-destinationrule",
        "epp-clusterrole",
        "epp-clusterrolebinding",
        "epp-metrics-token",
    }
    assert optional & set(keys(rendered)) == present
    for key in present & {"epp-clusterrole", "epp-clusterrolebinding"}:
        assert "namespace" not in the(rendered, key)["metadata"]
        assert the(rendered, key)["metadata"]["name"] == f"{W}-epp"


def test_the_mesh_accepts_the_self_signed_certificate_of_the_picker() -> None:
    rule = the(render(cluster=a_cluster(mesh_provider="istio")), "epp-destinationrule")
    assert rule["spec"] == {
        "host": f"{W}-epp-grpc.ml-team.svc.cluster.local",
        "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}},
    }


def monitors(rendered: Any) -> dict[str, Any]:
    return {
        key: the(rendered, key)["spec"]
        for key in keys(rendered)
        if key.startswith("monitor-")
    }


def test_serving_pods_and_picker_are_scraped_with_fleet_labels() -> None:
    found = monitors(render())
    assert found.keys() == {"monitor-engines", "monitor-epp"}
    assert found["monitor-engines"] == {
        "selector": {"matchLabels": {"modelplane.ai/serving": W}},
        "podMetricsEndpoints": [
            {
                "port": "http",
                "path": "/metrics",
                "interval": "30s",
                "relabelings": [
                    {"targetLabel": "model_deployment", "replacement": "qwen3-8b"},
                    {"targetLabel": "model_namespace", "replacement": "ml-team"},
                    {"targetLabel": "inference_cluster", "replacement": "eu-1"},
                ],
            }
        ],
    }
    assert found["monitor-epp"]["selector"] == {"matchLabels": {"app": f"{W}-epp"}}
    assert found["monitor-epp"]["podMetricsEndpoints"][0]["port"] == "metrics"


def test_each_phase_is_scraped_apart() -> None:
    found = monitors(render_pair())
    assert found.keys() == {"monitor-prefill", "monitor-decode", "monitor-epp"}
    assert found["monitor-decode"]["selector"] == {
        "matchLabels": {"modelplane.ai/serving": W, "llm-d.ai/role": "decode"}
    }


def test_a_scraper_shows_its_token_where_metrics_are_guarded() -> None:
    rendered = render(settings={"epp_metrics_auth": True})
    endpoint = monitors(rendered)["monitor-epp"]["podMetricsEndpoints"][0]
    assert endpoint["authorization"] == {
        "credentials": {"name": f"{W}-epp-metrics", "key": "token"}
    }
    token = the(rendered, "epp-metrics-token")
    assert token["type"] == "kubernetes.io/service-account-token"
    assert (
        token["metadata"]["annotations"]["kubernetes.io/service-account.name"]
        == f"{W}-epp"
    )


@pytest.mark.parametrize(
    ("apis", "enabled"),
    [
        (frozenset({apiversions.GATEWAY}), True),
        (apiversions.STACK, False),
        (frozenset(), True),
    ],
    ids=["without the kind", "turned off", "wanted but not served"],
)
def test_nothing_is_scraped_without_podmonitors_or_when_monitoring_is_off(
    apis: frozenset[str], enabled: bool
) -> None:
    assert (
        monitors(
            render(
                cluster=a_cluster(apis=apis), settings={"monitoring_enabled": enabled}
            )
        )
        == {}
    )


def test_tracing_reaches_picker_and_sidecar_and_no_engine() -> None:
    rendered = render_pair(
        settings={"tracing_enabled": True, "tracing_endpoint": "http://otel:4317"}
    )
    container = picker(rendered)["spec"]["containers"][0]
    assert "--tracing=true" in container["args"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert list(variables)[:2] == ["NAMESPACE", "POD_NAME"]
    assert variables["OTEL_SERVICE_NAME"] == "modelplane-epp"
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel:4317"
    assert (variables["OTEL_TRACES_SAMPLER"], variables["OTEL_TRACES_SAMPLER_ARG"]) == (
        "parentbased_traceidratio",
        "0.01",
    )
    spec = the(rendered, "model-serving-alpha")["spec"]["template"]["spec"]
    assert "--tracing" in spec["initContainers"][0]["args"]
    assert spec["initContainers"][0]["env"][0] == {
        "name": "OTEL_SERVICE_NAME",
        "value": "llm-d-routing-sidecar",
    }
    assert not any(
        entry["name"].startswith("OTEL") for entry in spec["containers"][0]["env"]
    )
