"""kubectl's JSONPath templates, with the outputs that `kubectl get` 1.35 prints."""

import pytest

from client.output.jsonpath import path_of, template_of
from fleet_client.errors import Refused

READY = {"type": "Ready", "status": "True"}
A = {
    "metadata": {"name": "a", "labels": {"modelplane.ai/pool": "gpus"}},
    "spec": {"replicas": 2},
    "status": {"conditions": [{"type": "Accepted", "status": "False"}, READY]},
}
B = {"metadata": {"name": "b"}, "spec": {"replicas": 3}}
LIST = {"apiVersion": "v1", "kind": "List", "items": [A, B]}


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{.items[*].metadata.name}", "a b"),
        ("names: {.items[0].metadata.name}.", "names: a."),
        (
            r'{range .items[*]}{.metadata.name}{"\t"}{.spec.replicas}{"\n"}{end}',
            "a\t2\nb\t3\n",
        ),
        ('{.items[0].status.conditions[?(@.type=="Ready")].status}', "True"),
        (r"{.items[0].metadata.labels.modelplane\.ai/pool}", "gpus"),
        ("{.items[0].metadata.labels['modelplane.ai/pool']}", "gpus"),
        ("{..name}", "a b"),
        ("{.items[-1:].metadata.name}", "b"),
        ("{.items[0].spec}", '{"replicas": 2}'),
        ("{$.kind}", "List"),
        ("{.items[0].nothing.here}", ""),
        ("{'{'}", "{"),
    ],
)
def test_a_template_prints_what_kubectl_prints(template: str, printed: str) -> None:
    assert template_of(template)(LIST) == printed


@pytest.mark.parametrize(
    "template",
    ["{.a", ".a}", "{end}", "{range .items[*]}x", "{.items[}", "{.a[?(@.b==)]}"],
)
def test_a_malformed_template_is_refused_with_an_example(template: str) -> None:
    with pytest.raises(Refused) as refused:
        template_of(template)
    assert "`" in refused.value.next_step


@pytest.mark.parametrize("path", [".kind", "kind", "{.kind}", "$.kind", "{$.kind}"])
def test_a_path_may_have_braces_and_a_root_or_not(path: str) -> None:
    assert path_of(path)(LIST) == ["List"]
