"""Admission of the LoRA adapters of an engine."""

from typing import Any

import pytest

from api_types.resources.parts.referenced_caches import (
    adapter_caches,
    referenced_caches,
)
from tests.api_types.builders import (
    a_deployment,
    a_replica,
    an_engine,
    merged,
    problems,
    warnings,
)

ENGINE = "spec.template.spec.engines[name=a]"


def adapter(name: str = "x", cache: str = "x-lora", **fields: Any) -> dict[str, Any]:
    return {"name": name, "modelCacheRef": {"name": cache}, **fields}


def adapted(*adapters: dict[str, Any], model: str = "qwen") -> dict[str, Any]:
    return a_deployment(
        an_engine(adapters=list(adapters)), modelCacheRef={"name": model}
    )


OWN = (
    '"qwen" is the cache of the model, mounted at /mnt/models; give the adapter its '
    "own ModelCache"
)
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("every field", adapted(adapter(load="VLLM"), adapter("y", "x-lora")), []),
    ("no cache for the model", a_deployment(an_engine(adapters=[adapter()])), []),
    (
        "a name that is not a label",
        adapted(adapter("Sales")),
        [
            (
                f"{ENGINE}.adapters[name=Sales].name: must be a DNS label: lower-case "
                "letters, digits, hyphen"
            )
        ],
    ),
    (
        "a name twice",
        adapted(adapter(), adapter()),
        [f"{ENGINE}.adapters[name=x]: duplicate name; adapter names must be unique"],
    ),
    (
        "the cache of the model",
        adapted(adapter(cache="qwen")),
        [f"{ENGINE}.adapters[name=x].modelCacheRef.name: {OWN}"],
    ),
]


@pytest.mark.parametrize(
    ("document", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_adapters_are_checked_where_they_are_written(
    document: dict[str, Any], said: list[str]
) -> None:
    assert problems(document) == said


def test_the_caches_of_all_engines_together_have_a_limit() -> None:
    def many(count: int) -> list[str]:
        found = [adapter(f"a{index}", f"cache-{index}") for index in range(count)]
        return problems(
            a_deployment(
                *(
                    an_engine(name=f"e{at}", adapters=found[at : at + 11])
                    for at in range(0, count, 11)
                )
            )
        )

    assert many(32) == []
    assert many(33) == [
        (
            "spec.template.spec.engines: adapters may use at most 32 ModelCaches "
            "together, got 33; split the deployment"
        )
    ]


def test_a_replica_is_checked_too() -> None:
    spec = a_replica()["spec"]
    change = {
        "modelCacheRef": {"name": "qwen"},
        "engines": [{**spec["engines"][0], "adapters": [adapter(cache="qwen")]}],
    }
    assert problems(merged(a_replica(), {"spec": change})) == [
        f"spec.engines[name=a].adapters[name=x].modelCacheRef.name: {OWN}"
    ]


def test_caches_of_a_template_are_listed_once_and_the_models_first() -> None:
    spec = adapted(
        adapter("a", "z"), adapter("b", "c"), adapter("c", "z"), adapter("d", "qwen")
    )["spec"]["template"]["spec"]
    assert (adapter_caches(spec), referenced_caches(spec)) == (
        ["c", "z"],
        ["qwen", "c", "z"],
    )
    assert referenced_caches({"engines": [{"name": "a"}]}) == []


NAMES = f"{ENGINE}.adapters[name=x].modelNames[0]"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["acme/x:2026", "x-latest"], []),
        (["an x"], [f"{NAMES}: 'an x' must be printable ASCII without spaces"]),
        (["é"], [f"{NAMES}: 'é' must be printable ASCII without spaces"]),
        (["x"], [f'{NAMES}: "x" is already the name of an adapter; remove it']),
        (["y"], [f'{NAMES}: "y" is already the name of an adapter; remove it']),
    ],
)
def test_a_public_name_is_one_that_a_request_can_have(
    names: list[str], said: list[str]
) -> None:
    assert problems(adapted(adapter(modelNames=names), adapter("y", "y-lora"))) == said


def test_a_public_name_means_one_adapter_in_all_engines() -> None:
    def two(second: str) -> list[str]:
        engines = [
            an_engine(name=name, adapters=[adapter(of, modelNames=["public"])])
            for name, of in (("a", "first"), ("b", second))
        ]
        return problems(a_deployment(*engines))

    path = "spec.template.spec.engines[name=b].adapters[name=second].modelNames[0]"
    assert two("second") == [
        f'{path}: "public" already means adapter "first"; give each adapter its own'
    ]
    assert two("first") == []


def test_public_names_have_bounds() -> None:
    def said(names: list[str]) -> list[str]:
        return problems(adapted(adapter(modelNames=names)))

    assert said([f"name-{index}" for index in range(8)]) == []
    assert len(said([f"name-{index}" for index in range(9)])) == 1
    assert (len(said([])), said(["a" * 253]), len(said(["a" * 254]))) == (1, [], 1)


def test_a_name_is_there_once_in_a_list() -> None:
    path = f"{ENGINE}.adapters[name=x].modelNames[2]"
    assert problems(adapted(adapter(modelNames=["a", "b", "a"]))) == [
        f'{path}: "a" is listed twice; remove one'
    ]


def test_one_name_means_the_same_weights_in_all_engines() -> None:
    engines = [
        an_engine(name=name, adapters=[adapter(cache=cache)])
        for name, cache in (("a", "x-lora"), ("b", "y-lora"))
    ]
    path = "engines[name=b].adapters[name=x].modelCacheRef.name"
    said = (
        'adapter "x" of engine a has cache "x-lora", got "y-lora"; use one cache, or '
        "another name"
    )
    assert problems(a_deployment(*engines)) == [f"spec.template.spec.{path}: {said}"]
    engine = a_replica()["spec"]["engines"][0]
    placed = [
        {**engine, "name": each["name"], "adapters": each["adapters"]}
        for each in engines
    ]
    assert problems(merged(a_replica(), {"spec": {"engines": placed}})) == [
        f"spec.{path}: {said}"
    ]


def test_an_engine_without_the_adapters_of_another_is_a_warning() -> None:
    text = (
        "has no adapter x, y, which another engine has: the picker only prefers pods "
        "with the adapter, so this engine also gets requests for it, and does not "
        "know the model; give all engines the same adapters"
    )
    both = [adapter(), adapter("y", "y-lora")]
    assert warnings(a_deployment(an_engine(adapters=both), an_engine(name="b"))) == [
        f"spec.template.spec.engines[name=b]: {text}"
    ]
    pair = [
        an_engine(name="a", phase="Prefill"),
        an_engine(name="b", phase="Decode", adapters=both),
    ]
    assert warnings(a_deployment(*pair, serving={"mode": "PrefillDecode"})) == [
        f"{ENGINE}: {text}"
    ]
    assert (
        warnings(
            a_deployment(an_engine(adapters=both), an_engine(name="b", adapters=both))
        )
        == []
    )
