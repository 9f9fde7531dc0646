"""LoRA adapters from caches of their own."""

import json
from typing import Any

import pytest

from activities.render.objects.rendered import Rendered
from activities.render.replica import InvalidSpec
from tests.activities.render.builders import (
    CLAIM,
    a_cluster,
    a_gang,
    a_member,
    a_pair,
    an_engine,
    container,
    keys,
    nothings,
    pod,
    render,
    the,
)

CLAIMS = {"support-lora": "claim-support", "sales-lora": "claim-sales"}
LOADED = [
    "--enable-lora",
    "--lora-modules",
    "support=/mnt/adapters/support",
    "sales=/mnt/adapters/sales",
]


def adapters(load: str = "Mount") -> list[dict[str, Any]]:
    return [
        {"name": name, "modelCacheRef": {"name": f"{name}-lora"}, "load": load}
        for name in ("support", "sales")
    ]


def adapted(*engines: dict[str, Any], load: str = "Mount", **fields: Any) -> Rendered:
    """Return a replica with a cache for its model and two adapters."""
    engines = engines or (an_engine(adapters=adapters(load)),)
    return render(
        *engines,
        **{"cache": "qwen", "cache_claim": CLAIM, "adapter_claims": CLAIMS, **fields},
    )


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_adapters_are_mounted_in_every_pod_next_to_the_model(role: str) -> None:
    rendered = adapted(a_gang(adapters=adapters()))
    assert container(rendered, role=role)["volumeMounts"][1:] == [
        {"name": "model-cache", "mountPath": "/mnt/models"},
        {
            "name": "adapter-support",
            "mountPath": "/mnt/adapters/support",
            "readOnly": True,
        },
        {"name": "adapter-sales", "mountPath": "/mnt/adapters/sales", "readOnly": True},
    ]
    assert pod(rendered, role=role)["spec"]["volumes"][2:] == [
        {
            "name": f"adapter-{name}",
            "persistentVolumeClaim": {"claimName": f"claim-{name}"},
        }
        for name in ("support", "sales")
    ]
    assert [path for item in rendered.objects for path in nothings(item.manifest)] == []


def test_only_vllm_gets_arguments() -> None:
    assert container(adapted())["args"] == ["--model=/mnt/models"]


def test_the_flags_of_vllm_follow_the_flags_of_the_user_and_the_model() -> None:
    engine = an_engine(
        "main", a_member(args=["--max-loras=2"]), adapters=adapters("VLLM")
    )
    assert container(adapted(engine))["args"] == [
        "--max-loras=2",
        "--model=/mnt/models",
        *LOADED,
    ]


def test_flags_without_a_cache_for_the_model() -> None:
    assert container(adapted(load="VLLM", cache="", cache_claim=""))["args"] == LOADED


def test_a_follower_gets_no_flags() -> None:
    rendered = adapted(
        a_gang(worker={"args": ["--headless"]}, adapters=adapters("VLLM"))
    )
    assert container(rendered, role="Leader")["args"][-4:] == LOADED
    assert container(rendered, role="Worker")["args"] == ["--headless"]


def test_a_flag_of_the_user_is_not_repeated() -> None:
    engine = an_engine(
        "main", a_member(args=["--enable-lora"]), adapters=adapters("VLLM")
    )
    assert container(adapted(engine))["args"] == [
        "--enable-lora",
        "--model=/mnt/models",
        *LOADED[1:],
    ]


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ({"command": ["vllm", "serve"]}, "the container has a command"),
        ({"args": ["--lora-modules", "a=/x"]}, "--lora-modules is set"),
    ],
)
def test_an_engine_with_its_own_command_keeps_its_args_and_a_warning_lists_the_missing_ones(
    member: dict[str, Any], why: str
) -> None:
    rendered = adapted(an_engine("main", a_member(**member), adapters=adapters("VLLM")))
    assert "--enable-lora" not in container(rendered).get("args", [])
    assert (
        f"engine main, member Standalone: {why}, so no adapter is loaded by the "
        f"platform: add {' '.join(LOADED)} yourself"
    ) in rendered.warnings


@pytest.mark.parametrize("missing", [*CLAIMS, "qwen"])
def test_engines_wait_until_every_cache_is_ready(missing: str) -> None:
    fields = (
        {"cache_claim": ""}
        if missing == "qwen"
        else {
            "adapter_claims": {
                name: claim for name, claim in CLAIMS.items() if name != missing
            }
        }
    )
    rendered = adapted(**fields)
    assert rendered.held == "WaitingForCache"
    assert "model-serving-main" not in keys(rendered)
    assert "epp" in keys(rendered)


def test_claims_may_be_known_by_the_cluster() -> None:
    cluster = a_cluster(cache_claims={"ml-team/support-lora": "a", "sales-lora": "b"})
    assert [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod(adapted(adapter_claims={}, cluster=cluster))["spec"][
            "volumes"
        ][2:]
    ] == [
        "a",
        "b",
    ]


def scorers(rendered: Rendered) -> list[tuple[str, int]]:
    config = json.loads(the(rendered, "epp-config")["data"]["epp-config.yaml"])
    named = {plugin["type"] for plugin in config["plugins"]}
    weighted = [
        (each["pluginRef"], each["weight"])
        for each in config["schedulingProfiles"][0]["plugins"]
        if "weight" in each
    ]
    assert {name for name, _ in weighted} <= named
    return weighted


def test_the_picker_prefers_pods_that_have_the_adapter() -> None:
    without = [
        ("prefix-cache-scorer", 3),
        ("queue-scorer", 3),
        ("kv-cache-utilization-scorer", 2),
    ]
    assert scorers(render()) == without
    assert scorers(adapted()) == [*without, ("lora-affinity-scorer", 1)]


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        (
            {"name": "A b", "modelCacheRef": {"name": "x"}},
            "the name 'A b' must be a DNS label",
        ),
        ({"name": "a"}, "modelCacheRef: name is missing"),
        ({"modelCacheRef": {"name": "x"}}, "name is missing"),
        (
            {"name": "a", "modelCacheRef": {"name": "x"}, "load": "SGLang"},
            "load must be one of Mount, VLLM",
        ),
    ],
)
def test_an_invalid_stored_adapter_is_refused(
    adapter: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said):
        render(an_engine(adapters=[adapter]))


def test_a_stored_adapter_that_is_there_twice_is_refused() -> None:
    with pytest.raises(
        InvalidSpec,
        match="engine main, adapters: 'support' is used 2 times: give each adapter its own name",
    ):
        render(an_engine(adapters=adapters()[:1] * 2))


def test_one_name_means_the_same_weights_in_all_engines() -> None:
    others = [{"name": "support", "modelCacheRef": {"name": "sales-lora"}}]
    said = (
        'adapter "support" of engine a has cache "support-lora", got "sales-lora"; '
        "use one cache, or another name"
    )
    with pytest.raises(InvalidSpec, match=f"engine b, adapters: {said}"):
        adapted(
            an_engine("a", adapters=adapters()[:1]), an_engine("b", adapters=others)
        )


MISSING = (
    "has no adapter sales, which another engine has: the picker only prefers pods with "
    "the adapter"
)


def test_an_engine_without_the_adapters_of_another_is_named() -> None:
    (said,) = adapted(
        an_engine("a", adapters=adapters()), an_engine("b", adapters=adapters()[:1])
    ).warnings
    assert said.startswith(f"engine b: {MISSING}")
    decode, prefill = a_pair()
    paired = adapted(
        {**decode, "adapters": adapters()},
        {**prefill, "adapters": adapters()[:1]},
        mode="PrefillDecode",
    )
    assert any(
        warning.startswith(f"engine beta: {MISSING}") for warning in paired.warnings
    )
    assert (
        adapted(*(an_engine(name, adapters=adapters()) for name in ("a", "b"))).warnings
        == ()
    )


LOOKS = (
    "engine main, member Standalone: load: VLLM adds flags of vLLM, but the engine "
    "looks like {}: use load: Mount"
)


@pytest.mark.parametrize(
    ("member", "engine"),
    [
        ({"image": "lmsysorg/sglang:v0.5"}, "SGLang"),
        ({"command": ["trtllm-serve", "serve"]}, "TensorRT-LLM"),
        (
            {"image": "lmsysorg/sglang:v0.5", "args": ["--lora-modules", "a=/x"]},
            "SGLang",
        ),
    ],
)
def test_flags_of_vllm_for_another_engine_are_a_warning(
    member: dict[str, Any], engine: str
) -> None:
    def said(load: str) -> list[str]:
        warnings = adapted(
            an_engine("main", a_member(**member), adapters=adapters(load))
        ).warnings
        return [
            warning
            for warning in warnings
            if "--enable-metrics" not in warning and "--model" not in warning
        ]

    (warning,) = said("VLLM")
    assert warning.startswith(LOOKS.format(engine))
    assert said("Mount") == []


def test_vllm_gets_arguments_without_a_warning() -> None:
    assert (
        adapted(
            an_engine(
                "main",
                a_member(image="vllm/vllm-openai:v0.11"),
                adapters=adapters("VLLM"),
            )
        ).warnings
        == ()
    )
