"""Cluster facts from a file, for rendering without a cluster.

```yaml
clusters:
  eu-1: {kubernetesVersion: "1.35", routing: pool, cacheClaims: {ml-team/qwen: my-claim}}
```

What is left out has the default of a provisioned cluster with the whole stack.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from activities.render.inputs.facts import ClusterInput, InvalidFacts
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.reader import Reader

_TEXTS = {
    "kubernetesVersion": "kubernetes_version",
    "draVersion": "dra_version",
    "routing": "routing",
    "schedulerType": "scheduler_type",
    "meshProvider": "mesh_provider",
    "storageClassName": "storage_class_name",
    "gatewayAddress": "gateway_address",
}
_FIELDS = (*_TEXTS, "apis", "cacheClaims")


class InvalidFactsFile(NotRenderable):
    """A facts file with invalid values; `problems` holds all of them."""

    reason = "InvalidFacts"


def read_facts(document: Any, source: str) -> dict[str, ClusterInput]:
    """Give the facts of every cluster of a parsed file, by name. `source` names the file in errors. Raises InvalidFactsFile."""
    findings = Findings()
    file = Reader(document, "", findings)
    _check_names(file, ("clusters",))
    clusters = {name: _cluster(name, value, findings) for name, value in file.object("clusters").fields.items()}
    if findings.problems:
        raise InvalidFactsFile(source, tuple(findings.problems))
    return {name: cluster for name, cluster in clusters.items() if cluster is not None}


def _cluster(name: str, value: Any, findings: Findings) -> ClusterInput | None:
    reader = Reader({} if value is None else value, f"clusters.{name}", findings)
    _check_names(reader, _FIELDS)
    given: dict[str, Any] = {}
    for key, field in _TEXTS.items():
        # A value of another type is noted once, and then counts as left out.
        text = reader.text(key)
        if isinstance(reader.fields.get(key), str):
            given[field] = text
    if reader.has("apis"):
        given["apis"] = reader.texts("apis")
    claims: Mapping[str, Any] = reader.object("cacheClaims").fields
    for cache, claim in claims.items():
        if not isinstance(claim, str):
            findings.problem(reader.where, f"cacheClaims.{cache} must be the name of a volume claim, is {claim!r}")
    try:
        return ClusterInput.assumed(name, dict(claims), **given)
    except InvalidFacts as error:
        for problem in error.problems:
            findings.problem(reader.where, problem)
        return None


def _check_names(reader: Reader, known: tuple[str, ...]) -> None:
    for name in reader.fields:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            reader.findings.problem(reader.where, f"{name} is unknown{f': did you mean {near[0]}?' if near else ''}")
