"""Size limits of data that others carry: selectors, placement input, classes."""

from typing import Any

import pytest

from api_types.resources.inference_class import InferenceClassSpec
from api_types.validation.manifests import NO_CHECKS
from tests.api_types.builders import (
    a_class,
    a_deployment,
    a_member,
    an_engine,
    problems,
)


@pytest.mark.parametrize("size", [32 * 1024, 32 * 1024 + 1])
def test_selectors_of_all_engines_together_have_a_size_limit(size: int) -> None:
    lengths = [10_000, 10_000, 10_000, size - 30_000]
    requests = [
        {"name": "gpu", "selectors": [{"cel": "x" * length}]} for length in lengths
    ]
    engines = [
        an_engine(a_member(nodeSelector={"devices": [request]}), name=f"e{number}")
        for number, request in enumerate(requests)
    ]
    said = (
        "spec.template.spec.engines: the selectors of all engines together must be "
        f"at most 32768 bytes, got {size}"
    )
    assert problems(a_deployment(*engines), NO_CHECKS) == (
        [said] if size > 32 * 1024 else []
    )


@pytest.mark.parametrize("size", [16 * 1024, 16 * 1024 + 1])
@pytest.mark.parametrize(
    "field", ["namespaces", "topologyKey", "clusterSelector", "tolerations"]
)
def test_placement_input_has_a_size_limit(field: str, size: int) -> None:
    """The scheduler carries this input of all deployments.

    Without a limit, a dozen deployments with 200 KB each would make it rebuild its
    state again and again.
    """
    affinity: dict[str, list[dict[str, Any]]] = {
        "required": [{"selector": {"matchLabels": {"a": "b"}}}]
    }
    document = a_deployment()
    document["spec"]["scheduling"] = {"antiAffinity": affinity}
    template = document["spec"]["template"]["spec"]
    template |= {
        "clusterSelector": {"matchLabels": {"a": "b"}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }

    def fill(by: int) -> None:
        names, rest = divmod(by, 63 + 3)
        match field:
            case "namespaces":
                affinity["required"][0]["namespaces"] = ["n" * 63] * names + [
                    "n" * (rest or 1)
                ]
            case "topologyKey":
                affinity["required"][0]["topologyKey"] = "k" * by
            case "clusterSelector":
                template["clusterSelector"]["matchLabels"] = {"k" * by: "b"}
            case _:
                template["tolerations"] = [
                    {"key": "a", "operator": "Equal", "value": "v" * by}
                ]

    fill(20_000)
    (found,) = [
        int(text.partition("got ")[2].partition(";")[0])
        for text in problems(document)
        if "together must be at most 16384" in text
    ]
    fill(20_000 - found + size)
    said = [
        text
        for text in problems(document)
        if "together must be at most 16384 bytes of JSON" in text
    ]
    assert len(said) == (size > 16 * 1024)


@pytest.mark.parametrize("size", [32 * 1024, 32 * 1024 + 1])
def test_a_class_has_a_size_limit(size: int) -> None:
    empty = len(
        InferenceClassSpec.model_validate(
            a_class(description="")["spec"]
        ).model_dump_json(by_alias=True, exclude_none=True)
    )
    said = (
        f"spec: must be at most 32768 bytes of JSON, got {size}; shorten description, "
        "attributes or capacity"
    )
    assert problems(a_class(description="x" * (size - empty))) == (
        [said] if size > 32 * 1024 else []
    )
