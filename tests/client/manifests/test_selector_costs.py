"""`validate` and `apply` refuse the most expensive selectors of a document at once,
with a message.
"""

import resource
from pathlib import Path
from typing import Any

import pytest

from api_types.limits import SELECTORS_COST_MAX
from api_types.validation.manifests import InvalidManifest, admit_all, parse
from fleet_client.checks import CHECKS
from scheduler.cel.runtime import regexes
from scheduler.cel.selector import _compile
from tests.api_types.builders import (
    RESOLVED,
    a_deployment,
    a_member,
    a_replica,
    an_engine,
    merged,
)
from tests.environment.effort import effort_below
from tests.scheduler.builders import forget

EFFORT_MAX = 200
MIB_MAX = 300
ENGINES, REQUESTS, SELECTORS = 8, 16, 8


def with_selectors(*texts: str) -> dict[str, Any]:
    """Build a deployment with these selectors, as many per request, member and engine
    as fit.
    """
    requests = [
        {
            "name": f"r{at}",
            "selectors": [{"cel": text} for text in texts[at : at + SELECTORS]],
        }
        for at in range(0, len(texts), SELECTORS)
    ]
    members = [
        a_member(nodeSelector={"devices": requests[at : at + REQUESTS]})
        for at in range(0, len(requests), REQUESTS)
    ]
    return a_deployment(
        *(an_engine(member, name=f"e{number}") for number, member in enumerate(members))
    )


def refusal(document: dict[str, Any]) -> list[str]:
    forget(_compile)
    regexes.compile_pattern.cache_clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = []
    with effort_below(EFFORT_MAX):
        try:
            admit_all([document], CHECKS)
        except InvalidManifest as refused:
            found = [str(problem) for problem in refused.problems]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MIB_MAX * 1024
    return found


ONES = f"[{','.join(['1'] * 50)}]"
EVERY = ENGINES * REQUESTS * SELECTORS
WORST = {
    "too large patterns": [
        rf"'a'.matches('\\pL{{{999 - n % 900}}}')" for n in range(EVERY)
    ],
    "patterns that are just small enough": [
        rf"'a'.matches('\\pL{{{1 + n % 20}}}')" for n in range(EVERY)
    ],
    "different patterns": [f"'{n}'.matches('.{{99{n % 10}}}')" for n in range(EVERY)],
    "selectors that may cost much": [
        f"{ONES}.all(a, {ONES}.all(b, a + b > -{n}))" for n in range(100)
    ],
    "selectors that do not compile": [f"nosuch{n}" for n in range(EVERY)],
    "long lists": [f"{[*range(n, n + 1800)]}.size() > 0" for n in range(3)],
    "long maps": [
        "{" + ",".join(f"{key}:{n}" for key in range(1200)) + "}.size() > 0"
        for n in range(3)
    ],
    "membership in long lists": [f"1 in {[*range(n, n + 1800)]}" for n in range(3)],
    "long texts": [f"'{'a' * 10_000}' == '{n}'" for n in range(3)],
    "nested loops": ["[1].all(a, " * 80 + f"{n} > 0" + ")" * 80 for n in range(30)],
    "parentheses": ["(" * 240 + f"{n} > 0" + ")" * 240 for n in range(60)],
    "chains of has": [
        "||".join([f"has(device.attributes['d{n}'].a{k})" for k in range(200)])
        for n in range(4)
    ],
    "quantities with large exponents": [
        f"quantity('{n}e4096').isGreaterThan(quantity('{n}e-4096'))" for n in range(500)
    ],
    "long numbers": [f"{'9' * 9000}{n} == 1" for n in range(3)],
    "numbers of a long text": [f"int('{'9' * 9000}{n}') == 1" for n in range(3)],
    "long versions": [
        f"semver('1.2.{n}-{'a.' * 4000}a').major() == 1" for n in range(3)
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("texts", WORST.values(), ids=WORST.keys())
def test_the_worst_selectors_are_read_at_once(texts: list[str]) -> None:
    refusal(with_selectors(*texts))


def test_selectors_that_do_not_fit_a_deployment_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.cel.selector._compile", None)
    (said,) = refusal(
        with_selectors(*(f"'{'a' * 200}' == '{n}'" for n in range(EVERY)))
    )
    assert (
        "engines: the selectors of all engines together must be at most 32768 bytes"
        in said
    )


def test_too_expensive_selectors_are_rejected_and_the_most_expensive_is_named() -> None:
    texts = [
        'device.driver == "a"',
        *(f"{ONES}.all(a, {ONES}.all(b, a + b > -{n}))" for n in range(30)),
    ]
    (said,) = refusal(with_selectors(*texts))
    assert (
        "spec.template.spec.engines: the selectors of all engines together may cost "
        in said
    )
    assert f"units or more, {SELECTORS_COST_MAX} are allowed; simplify " in said
    assert (
        "simplify engines[0].members[0].nodeSelector.devices[0].selectors[1] (" in said
    )
    assert "selectors[0] (" not in said


def test_the_selectors_of_a_replica_are_limited_too() -> None:
    texts = [f"{ONES}.all(a, {ONES}.all(b, a + b > -{n}))" for n in range(30)]
    requests = [
        merged(RESOLVED, {"name": f"r{n}", "selectors": [{"cel": text}]})
        for n, text in enumerate(texts)
    ]
    member = a_replica()["spec"]["engines"][0]["members"][0]
    engine = {
        **a_replica()["spec"]["engines"][0],
        "members": [{**member, "deviceRequests": requests}],
    }
    document = merged(a_replica(), {"spec": {"engines": [engine]}})
    assert any(
        "spec.engines: the selectors of all engines together may cost " in said
        for said in refusal(document)
    )


def test_only_the_first_selectors_that_do_not_compile_are_reported() -> None:
    said = refusal(with_selectors(*WORST["selectors that do not compile"]))
    assert len(said) == 17
    assert sum("unknown name nosuch" in one for one in said) == 16
    assert any(
        "16 selectors do not compile; fix these first, the selectors after them were not checked"
        in one
        for one in said
    )


@pytest.mark.parametrize("path", sorted(Path("examples").rglob("*.yaml")), ids=str)
def test_no_example_comes_near_the_limit(path: Path) -> None:
    costs = [
        CHECKS.selector_cost(selector["cel"])
        for document in parse(path.read_text(), str(path))
        for selector in _selectors(document)
    ]
    assert sum(costs) < SELECTORS_COST_MAX / 100


def _selectors(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return (
            [tree]
            if isinstance(tree.get("cel"), str)
            else [found for value in tree.values() for found in _selectors(value)]
        )
    return (
        [found for value in tree for found in _selectors(value)]
        if isinstance(tree, list | tuple)
        else []
    )
