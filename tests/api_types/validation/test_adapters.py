"""What admission says about the LoRA adapters of an engine (spec/api.md 3 to 6; ruling H10)."""

from typing import Any

import pytest

from api_types.referenced_caches import adapter_caches, referenced_caches
from tests.api_types.builders import a_deployment, a_replica, an_engine, merged, problems

ENGINE = "spec.template.spec.engines[name=a]"


def adapter(name: str = "x", cache: str = "x-lora", **fields: Any) -> dict[str, Any]:
    return {"name": name, "modelCacheRef": {"name": cache}, **fields}


def adapted(*adapters: dict[str, Any], model: str = "qwen") -> dict[str, Any]:
    return a_deployment(an_engine(adapters=list(adapters)), modelCacheRef={"name": model})


OWN = '"qwen" is the cache of the model, mounted at /mnt/models; give the adapter a ModelCache of its own'
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("every field", adapted(adapter(load="VLLM"), adapter("y", "x-lora")), []),
    ("no cache for the model", a_deployment(an_engine(adapters=[adapter()])), []),
    (
        "a name that is no label",
        adapted(adapter("Sales")),
        [f"{ENGINE}.adapters[name=Sales].name: must be a DNS label: lower-case letters, digits, hyphen"],
    ),
    (
        "a name twice",
        adapted(adapter(), adapter()),
        [f"{ENGINE}.adapters[name=x]: duplicate name; adapter names must be unique"],
    ),
    ("the cache of the model", adapted(adapter(cache="qwen")), [f"{ENGINE}.adapters[name=x].modelCacheRef.name: {OWN}"]),
]


@pytest.mark.parametrize(("document", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_adapters_are_checked_where_they_are_written(document: dict[str, Any], said: list[str]) -> None:
    assert problems(document) == said


def test_the_caches_of_all_engines_together_have_a_limit() -> None:
    def many(count: int) -> list[str]:
        found = [adapter(f"a{index}", f"cache-{index}") for index in range(count)]
        return problems(a_deployment(*(an_engine(name=f"e{at}", adapters=found[at : at + 11]) for at in range(0, count, 11))))

    assert many(32) == []
    assert many(33) == ["spec.template.spec.engines: adapters may use at most 32 ModelCaches together, got 33; split the deployment"]


def test_a_replica_is_checked_too() -> None:
    spec = a_replica()["spec"]
    change = {"modelCacheRef": {"name": "qwen"}, "engines": [{**spec["engines"][0], "adapters": [adapter(cache="qwen")]}]}
    assert problems(merged(a_replica(), {"spec": change})) == [f"spec.engines[name=a].adapters[name=x].modelCacheRef.name: {OWN}"]


def test_caches_of_a_template_are_named_once_that_of_the_model_first() -> None:
    spec = adapted(adapter("a", "z"), adapter("b", "c"), adapter("c", "z"), adapter("d", "qwen"))["spec"]["template"]["spec"]
    assert (adapter_caches(spec), referenced_caches(spec)) == (["c", "z"], ["qwen", "c", "z"])
    assert referenced_caches({"engines": [{"name": "a"}]}) == []
