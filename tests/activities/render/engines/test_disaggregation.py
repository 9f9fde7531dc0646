"""Disaggregated prefill and decode."""

import json
from typing import Any

import pytest

from activities.render.replica import InvalidSpec
from tests.activities.render.builders import (
    a_cluster,
    a_member,
    a_pair,
    an_engine,
    container,
    env,
    pod,
    render,
    render_pair,
    the,
)


def sidecar(rendered: Any, engine: str = "alpha") -> Any:
    return pod(rendered, engine)["spec"]["initContainers"][0]


def decode_ports(rendered: Any) -> tuple[int, int, str]:
    engine = container(rendered, "alpha")
    flag = next(
        word for word in sidecar(rendered)["args"] if word.startswith("--vllm-port")
    )
    return (
        engine["ports"][0]["containerPort"],
        engine["readinessProbe"]["httpGet"]["port"],
        flag,
    )


def test_roles_come_from_phases_and_not_from_names() -> None:
    rendered = render_pair()
    assert decode_ports(rendered) == (8001, 8001, "--vllm-port=8001")
    assert sidecar(rendered) == {
        "name": "pd-sidecar",
        "image": "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0",
        "restartPolicy": "Always",
        "args": ["--secure-proxy=false", "--kv-connector=nixlv2", "--vllm-port=8001"],
        "ports": [{"name": "proxy", "containerPort": 8000}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": 8000},
            "initialDelaySeconds": 30,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
        },
    }
    roles = {
        name: pod(rendered, name)["metadata"]["labels"] for name in ("alpha", "beta")
    }
    for name, role in (("alpha", "decode"), ("beta", "prefill")):
        expected = {
            "llm-d.ai/role": role,
            "llm-d.ai/inference-serving": "true",
            "app": rendered.workload_name,
        }
        assert roles[name].items() >= expected.items()


def test_older_clusters_get_a_plain_second_container() -> None:
    spec = pod(render_pair(cluster=a_cluster(kubernetes_version="1.28")), "alpha")[
        "spec"
    ]
    assert "initContainers" not in spec
    assert [
        (entry["name"], "restartPolicy" in entry) for entry in spec["containers"]
    ] == [("engine", False), ("pd-sidecar", False)]


@pytest.mark.parametrize(
    ("member", "port"),
    [
        pytest.param({"args": ["--port=9000"]}, 9000, id="one word"),
        pytest.param({"args": ["--port", "9000"]}, 9000, id="two words"),
        pytest.param(
            {"command": ["bash", "-lc", "exec vllm serve m \\\n --port 9000; true"]},
            9000,
            id="shell command",
        ),
        pytest.param(
            {"command": ["/bin/sh", "-c"], "args": ["vllm serve --port=9000"]},
            9000,
            id="shell text in args",
        ),
        pytest.param(
            {"command": ["vllm", "serve", "--port", "9000"]},
            9000,
            id="plain command",
        ),
        pytest.param(
            {"command": ["sh", "-c", "vllm 'open --port 9000"]},
            9000,
            id="shell text with an open quote",
        ),
    ],
)
def test_engine_probe_and_sidecar_agree_on_the_decode_port(
    member: dict[str, Any], port: int
) -> None:
    rendered = render_pair(decode=member)
    assert decode_ports(rendered) == (port, port, f"--vllm-port={port}")
    assert rendered.routing is not None
    assert rendered.routing.decode_port == port
    assert rendered.warnings == ()


@pytest.mark.parametrize(
    "member",
    [
        pytest.param({}, id="no flag"),
        pytest.param(
            {"args": ["--chat-template", "say --port 9000"]},
            id="a text that no shell reads",
        ),
    ],
)
def test_without_a_decode_port_8001_is_assumed_with_a_warning(
    member: dict[str, Any],
) -> None:
    """The default port of vLLM is 8000, which the sidecar uses."""
    rendered = render_pair(decode=member)
    assert decode_ports(rendered) == (8001, 8001, "--vllm-port=8001")
    (warning,) = rendered.warnings
    assert warning.startswith(
        "engine alpha, member Standalone: no --port is found: the sidecar "
        "listens on 8000, the default port of vLLM"
    )
    assert warning.endswith("; add --port=8001 to args")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param(
            "8000",
            "--port 8000 is taken by the sidecar: use 8001",
            id="the sidecar's port",
        ),
        pytest.param(
            "70000",
            "--port must be between 1 and 65535, is 70000",
            id="no port at all",
        ),
        pytest.param(
            "9" * 5000,
            "--port must be between 1 and 65535, is 9999",
            id="no number that Python reads",
        ),
    ],
)
def test_a_decode_port_that_cannot_work_is_refused(value: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        render_pair(decode={"args": [f"--port={value}"]})


def test_a_port_that_is_too_long_for_a_message_is_cut_in_it() -> None:
    with pytest.raises(InvalidSpec) as caught:
        render_pair(decode={"args": ["--port=" + "9" * 100_000]})
    assert len(str(caught.value)) < 5000


def test_a_port_from_a_variable_is_assumed_with_a_warning() -> None:
    rendered = render_pair(decode={"args": ["--port=$(P)"]})
    assert decode_ports(rendered)[0] == 8001
    assert rendered.warnings == (
        (
            "engine alpha, member Standalone: --port '$(P)' is not a number that can "
            "be read here: 8001 is assumed"
        ),
    )


def test_prefill_is_one_container_on_8000() -> None:
    spec = pod(render_pair(), "beta")["spec"]
    assert "initContainers" not in spec
    assert [entry["name"] for entry in spec["containers"]] == ["engine"]
    assert spec["containers"][0]["ports"] == [{"name": "http", "containerPort": 8000}]


def test_a_port_without_traffic_is_a_warning() -> None:
    warnings = render_pair(
        decode={"args": ["--port=8001"]}, prefill={"args": ["--port=9000"]}
    ).warnings
    assert warnings == (
        (
            "engine beta, member Standalone: --port is 9000, but requests go to "
            "8000: the engine must listen there"
        ),
    )


def test_the_users_own_nixl_entries_win() -> None:
    host = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "0.0.0.0"}  # noqa: S104
    rendered = render_pair(decode={"env": [host]})
    assert env(rendered, "alpha") == {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0",  # noqa: S104
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "5557",
    }
    assert env(rendered, "beta")["VLLM_NIXL_SIDE_CHANNEL_HOST"] == {
        "fieldRef": {"fieldPath": "status.podIP"}
    }


def test_in_a_gang_the_leader_fronts_and_everybody_transfers() -> None:
    decode = an_engine(
        "alpha", a_member("Leader"), a_member("Worker", nodes=1), phase="Decode"
    )
    rendered = render(decode, a_pair()[1], mode="PrefillDecode")
    assert sidecar(rendered)["name"] == "pd-sidecar"
    assert pod(rendered, "alpha")["metadata"]["labels"]["llm-d.ai/role"] == "decode"
    follower = pod(rendered, "alpha", "Worker")
    (waiting,) = follower["spec"]["initContainers"]
    assert waiting["name"] == "wait-for-leader"
    assert "labels" not in follower["metadata"]
    for role in ("Leader", "Worker"):
        assert list(env(rendered, "alpha", role)) == [
            "MODELPLANE_LEADER_ADDRESS",
            "MODELPLANE_RANK",
            "VLLM_NIXL_SIDE_CHANNEL_HOST",
            "VLLM_NIXL_SIDE_CHANNEL_PORT",
        ]


@pytest.mark.parametrize(
    ("args", "connector", "warned"),
    [
        pytest.param([], "nixlv2", False, id="nothing said"),
        pytest.param(
            ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector"})],
            "nixlv2",
            False,
            id="nixl",
        ),
        pytest.param(
            ["--kv-transfer-config", json.dumps({"kv_connector": "MooncakeConnector"})],
            "mooncake",
            False,
            id="mooncake",
        ),
        pytest.param(
            [
                '--kv-transfer-config={"kv_connector": "SharedStorageConnector", "x": $(X)}'
            ],
            "shared-storage",
            False,
            id="holes",
        ),
        pytest.param(
            ["--kv-transfer-config.kv_connector", "MooncakeConnector"],
            "mooncake",
            False,
            id="dotted",
        ),
        pytest.param(
            ["--kv_transfer_config", json.dumps({"kv_connector": "MooncakeConnector"})],
            "mooncake",
            False,
            id="underscores",
        ),
        pytest.param(["--disaggregation-mode", "decode"], "sglang", False, id="sglang"),
        pytest.param(
            [
                "--kv-transfer-config",
                json.dumps({"kv_connector": "LMCacheConnectorV1"}),
            ],
            "nixlv2",
            True,
            id="unknown",
        ),
        pytest.param(["--kv-transfer-config", "[]"], "nixlv2", False, id="no object"),
    ],
)
def test_the_sidecar_uses_the_connector_of_the_engine(
    args: list[str], connector: str, *, warned: bool
) -> None:
    rendered = render_pair(decode={"args": ["--port=8001", *args]})
    assert f"--kv-connector={connector}" in sidecar(rendered)["args"]
    assert rendered.routing is not None
    assert rendered.routing.connector == connector
    assert bool(rendered.warnings) is warned


SGLANG = {"args": ["--port=8001", "--disaggregation-mode=decode"]}
MOONCAKE = {
    "args": [
        "--port=8001",
        '--kv-transfer-config={"kv_connector": "MooncakeConnector"}',
    ]
}


def port_variable(value: str) -> dict[str, Any]:
    return {"env": [{"name": "VLLM_MOONCAKE_BOOTSTRAP_PORT", "value": value}]}


@pytest.mark.parametrize(
    ("decode", "prefill", "told", "warned"),
    [
        pytest.param(
            SGLANG,
            {"args": ["--disaggregation-bootstrap-port=9100"]},
            {"SGLANG_BOOTSTRAP_PORT": "9100"},
            False,
            id="sglang",
        ),
        pytest.param(
            SGLANG,
            {"args": ["--disaggregation-bootstrap-port", "8998"]},
            {},
            False,
            id="the default of both",
        ),
        pytest.param(
            SGLANG,
            {"args": ["--disaggregation-bootstrap-port=$(P)"]},
            {},
            True,
            id="a variable",
        ),
        pytest.param(
            SGLANG, {"args": ["--disaggregation-bootstrap-port=0"]}, {}, True, id="zero"
        ),
        pytest.param(
            SGLANG,
            {"args": ["--disaggregation-bootstrap-port=65536"]},
            {},
            True,
            id="too large",
        ),
        pytest.param(
            SGLANG,
            port_variable("9100"),
            {},
            False,
            id="the variable of another engine",
        ),
        pytest.param(
            MOONCAKE,
            port_variable("9100"),
            {"MOONCAKE_BOOTSTRAP_PORT": "9100"},
            False,
            id="mooncake",
        ),
        pytest.param(MOONCAKE, {}, {}, False, id="nothing said"),
        pytest.param(
            {"args": ["--port=8001"]},
            port_variable("9100"),
            {},
            False,
            id="a connector without such a port",
        ),
    ],
)
def test_the_sidecar_gets_the_transfer_port_of_prefill_pods(
    decode: dict[str, Any],
    prefill: dict[str, Any],
    told: dict[str, str],
    *,
    warned: bool,
) -> None:
    rendered = render_pair(decode=decode, prefill=prefill)
    assert {
        entry["name"]: entry["value"] for entry in sidecar(rendered).get("env", [])
    } == told
    assert (
        any("the sidecar uses 8998" in warning for warning in rendered.warnings)
        is warned
    )
    traced = render_pair(
        decode=decode, prefill=prefill, settings={"tracing_enabled": True}
    )
    assert {"OTEL_SERVICE_NAME", *told} <= {
        entry["name"] for entry in sidecar(traced)["env"]
    }


def test_shared_memory_is_mounted_once() -> None:
    for name in ("alpha", "beta"):
        spec = pod(render_pair(), name)["spec"]
        assert [volume["name"] for volume in spec["volumes"]] == ["dshm"]
        assert [
            mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]
        ] == ["/dev/shm"]  # noqa: S108


@pytest.mark.parametrize(
    ("engines", "mode", "problem"),
    [
        (
            a_pair()[:1],
            "PrefillDecode",
            (
                r"PrefillDecode needs exactly two engines, one Prefill and one "
                r"Decode; has alpha: Decode"
            ),
        ),
        (
            [a_pair()[0], a_pair()[0] | {"name": "x"}],
            "PrefillDecode",
            "has alpha: Decode, x: Decode",
        ),
        (
            [an_engine("a"), an_engine("b")],
            "PrefillDecode",
            "has a: no phase, b: no phase",
        ),
        (
            a_pair(),
            "",
            "engine alpha: phase may be set only when serving.mode is PrefillDecode",
        ),
        (
            [an_engine()],
            "Other",
            "mode must be one of Unified, PrefillDecode, is 'Other'",
        ),
    ],
    ids=[
        "one engine",
        "one phase twice",
        "no phases",
        "phases in Unified",
        "unknown mode",
    ],
)
def test_phases_and_mode_must_agree(
    engines: list[dict[str, Any]], mode: str, problem: str
) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        render(*engines, mode=mode)


def test_prefill_is_applied_before_decode_so_that_teardown_empties_decode_first() -> (
    None
):
    assert [engine.name for engine in render_pair().engines] == ["beta", "alpha"]


def test_the_cache_is_mounted_by_engines_and_not_by_the_sidecar() -> None:
    rendered = render_pair(cache="qwen", cache_claim="claim")
    assert "volumeMounts" not in sidecar(rendered)
    assert {"name": "model-cache", "mountPath": "/mnt/models"} in container(
        rendered, "alpha"
    )["volumeMounts"]
    assert container(rendered, "beta")["args"] == ["--model=/mnt/models"]
    assert the(rendered, "model-serving-alpha")


@pytest.mark.parametrize(
    ("config", "connector"),
    [
        ("[" * 2000, "nixlv2"),
        ('{"kv_connector":"MooncakeConnector","a":' + "[" * 2000, "mooncake"),
        ('{"a":' * 2000, "nixlv2"),
        (
            '{"kv_connector":"MooncakeConnector","a":' + "[" * 150 + "]" * 150 + "}",
            "mooncake",
        ),
        ('{"kv_connector":"MooncakeConnector",$REST}', "mooncake"),
        ('["kv_connector"]', "nixlv2"),
        ("1" * 5000, "nixlv2"),
    ],
)
def test_a_configuration_of_any_form_is_read_within_bounds(
    config: str, connector: str
) -> None:
    args = ["--port=8200", "--kv-transfer-config", config]
    assert (
        f"--kv-connector={connector}"
        in sidecar(render_pair(decode={"args": args}))["args"]
    )


def test_a_connector_that_is_nested_is_shown_within_bounds() -> None:
    config = '{"kv_connector":' + "[" * 150 + "]" * 150 + "}"
    rendered = render_pair(
        decode={"args": ["--port=8200", "--kv-transfer-config", config]}
    )
    assert any("is not one of NixlConnector" in text for text in rendered.warnings)
