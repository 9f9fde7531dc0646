"""Public model names of LoRA adapters."""

from typing import Any

import pytest

from activities.render.inputs.facts import ClusterInput
from activities.render.inputs.findings import RoutingUnsupported, ServingStackMissing
from activities.render.objects.rendered import Rendered
from activities.render.objects.teardown import step_of
from activities.render.replica import InvalidSpec
from api_types import labels
from api_types.pins import apiversions
from tests.activities.render.builders import (
    CLAIM,
    a_cluster,
    a_member,
    a_pair,
    an_engine,
    keys,
    nothings,
    render,
    the,
)

ROUTER, OLDER = apiversions.MODEL_REWRITES


def serving(*apis: str, **facts: Any) -> ClusterInput:
    """Return a cluster that serves these kinds in addition to the stack."""
    return a_cluster(apis=sorted({*apiversions.STACK, *apis}), **facts)


def adapter(name: str, *names: str) -> dict[str, Any]:
    return {
        "name": name,
        "modelCacheRef": {"name": f"{name}-lora"},
        **({"modelNames": list(names)} if names else {}),
    }


def renamed(
    *engines: dict[str, Any], cluster: ClusterInput | None = None, **fields: Any
) -> Rendered:
    """Return a replica whose adapters are staged."""
    claims = {f"{name}-lora": CLAIM for name in ("support", "sales")}
    return render(
        *engines, adapter_claims=claims, cluster=cluster or serving(ROUTER), **fields
    )


ENGINE = an_engine(
    adapters=[adapter("support", "acme/support", "support:2"), adapter("sales")]
)


def rules(rendered: Rendered) -> list[Any]:
    found: list[Any] = the(rendered, "model-rewrite")["spec"]["rules"]
    return found


def test_the_picker_gives_the_pods_the_name_of_the_adapter() -> None:
    rendered = renamed(ENGINE)
    assert the(rendered, "model-rewrite")["spec"] == {
        "poolRef": {
            "group": "inference.networking.k8s.io",
            "kind": "InferencePool",
            "name": the(rendered, "inference-pool")["metadata"]["name"],
        },
        "rules": [
            {
                "matches": [
                    {"model": {"type": "Exact", "value": "acme/support"}},
                    {"model": {"type": "Exact", "value": "support:2"}},
                ],
                "targets": [{"modelRewrite": "support"}],
            }
        ],
    }
    found = keys(rendered)
    assert (
        found.index("inference-pool")
        < found.index("model-rewrite")
        < found.index("model-route")
    )
    assert [path for item in rendered.objects for path in nothings(item.manifest)] == []


def test_without_public_names_there_is_no_rewrite() -> None:
    assert "model-rewrite" not in keys(
        renamed(an_engine(adapters=[adapter("support")]))
    )


def test_engines_with_one_adapter_have_one_rule() -> None:
    pair = [
        {**engine, "adapters": [adapter("support", "a", name)]}
        for engine, name in zip(a_pair(), ("b", "c"), strict=True)
    ]
    rendered = renamed(*pair, mode="PrefillDecode")
    assert [
        [match["model"]["value"] for match in rule["matches"]]
        for rule in rules(rendered)
    ] == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("served", "used"),
    [((OLDER,), OLDER), ((ROUTER,), ROUTER), ((OLDER, ROUTER), ROUTER)],
)
def test_the_group_is_the_one_that_the_picker_reads(
    served: tuple[str, ...], used: str
) -> None:
    assert (
        the(renamed(ENGINE, cluster=serving(*served)), "model-rewrite")["apiVersion"]
        == used
    )


def test_without_rewrites_the_error_names_the_component_to_install() -> None:
    with pytest.raises(
        ServingStackMissing,
        match=(
            r"cluster eu-1 lacks a feature: adapters\[\].modelNames needs "
            r"InferenceModelRewrite .*: install .* Inference Extension v1.2.0 or newer"
        ),
    ):
        renamed(ENGINE, cluster=serving())
    assert "model-route" in keys(
        renamed(an_engine(adapters=[adapter("support")]), cluster=serving())
    )


def test_plain_services_rename_nothing() -> None:
    with pytest.raises(
        RoutingUnsupported,
        match="routes to plain Services, and modelNames needs an endpoint picker",
    ):
        renamed(ENGINE, cluster=serving(ROUTER, routing="service"))


@pytest.mark.parametrize(
    ("adapters", "said"),
    [
        (
            [adapter("support", "a b")],
            (
                "engine main, adapter support, modelNames: 'a b' must be printable "
                "ASCII without spaces"
            ),
        ),
        (
            [adapter("support", "sales"), adapter("sales")],
            'modelNames: "sales" is already the name of an adapter',
        ),
        (
            [adapter("support", "a", "b", "a")],
            'adapter support, modelNames: "a" is listed twice; remove one',
        ),
        (
            [adapter("support", "a"), adapter("sales", "a")],
            'adapter sales, modelNames: "a" already means adapter "support"',
        ),
    ],
)
def test_stored_names_that_contradict_each_other_are_refused(
    adapters: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said):
        renamed(an_engine(adapters=adapters))


def test_names_are_deleted_before_the_pool_and_after_the_route() -> None:
    step = step_of("model-rewrite")
    assert step is step_of("inference-pool")
    assert step.number > step_of("model-route").number
    assert step.kinds[:2] == (
        (ROUTER, "InferenceModelRewrite"),
        (OLDER, "InferenceModelRewrite"),
    )


def test_other_public_names_leave_the_pods_as_they_are() -> None:
    def source(*names: str) -> Any:
        manifest = the(
            renamed(an_engine(adapters=[adapter("support", *names)])),
            "model-serving-main",
        )
        return manifest["metadata"]["annotations"][labels.PODS_SOURCE], manifest["spec"]

    assert source() == source("a") == source("b", "c")


@pytest.mark.parametrize(
    "member",
    [
        {"args": ["--served-model-name", "acme/qwen", "support", "--port=8000"]},
        {"args": ["--served_model_name=support"]},
        {"args": ["--model=support"]},
        {"args": ["--model-path", "support"]},
        {"args": ["support", "--max-loras=2"]},
        {"command": ["vllm", "serve", "support"]},
        {"command": ["sh", "-c"], "args": ["exec vllm serve support --max-loras=2"]},
    ],
)
@pytest.mark.parametrize(
    "named",
    [adapter("support"), adapter("sales", "a", "support")],
    ids=["its own name", "a public name"],
)
def test_the_name_of_the_model_itself_is_not_for_an_adapter(
    member: dict[str, Any], named: dict[str, Any]
) -> None:
    text = (
        f'engine b, adapter {named["name"]}: "support" is the name of the model '
        "itself, whose requests would go to the adapter; choose"
    )
    with pytest.raises(InvalidSpec, match=text):
        renamed(an_engine("a", a_member(**member)), an_engine("b", adapters=[named]))


@pytest.mark.parametrize(
    "member",
    [
        {"args": ["--served-model-name", "acme/qwen", "--tokenizer", "support"]},
        {"args": ["--served-model-name=acme/qwen", "support"]},
        {"args": ["--served-model-name", "support", "--served-model-name=acme/qwen"]},
        {"args": ["--model=support", "--served-model-name=acme/qwen"]},
        {"command": ["start", "serve"], "args": ["support"]},
        {"args": ["--max-loras=2", "support"]},
        {"command": ["vllm", "serve", "--max-loras=2"]},
    ],
)
def test_a_name_under_which_no_model_is_served_is_free(member: dict[str, Any]) -> None:
    assert renamed(
        an_engine("a", a_member(**member), adapters=[adapter("support", "public")])
    )


def test_an_adapter_without_a_name_has_a_single_error() -> None:
    with pytest.raises(InvalidSpec) as refused:
        renamed(an_engine("a", adapters=[{"modelCacheRef": {"name": "support-lora"}}]))
    assert refused.value.problems == ("engine a, adapters[0]: name is missing",)
