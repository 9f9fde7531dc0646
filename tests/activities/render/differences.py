"""What may differ from the objects of the baseline (tests/golden/README.md), one line each with its reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from api_types import labels

# They cover the content of their object, and so differ where anything else does.
_HASHES = (labels.RENDER_HASH, labels.TEMPLATE_HASH)


@dataclass(frozen=True)
class Intended:
    """A difference by object, `<set>/<kind>/<name>`, and path; both may have `*`. Entries of lists are in paths by their name."""

    manifest: str
    path: str
    reason: str

    def covers(self, manifest: str, path: str) -> bool:
        """Whether this is the difference."""
        return fnmatchcase(manifest, self.manifest) and fnmatchcase(path, self.path)


# The name of an engine's workload ends with eight digits of a hash, that of a picker does not.
_WORKERS = "leaderWorkerTemplate.workerTemplate"
_ENGINE_TEMPLATES = (("Deployment", "template"), ("LeaderWorkerSet", "leaderWorkerTemplate.leaderTemplate"), ("LeaderWorkerSet", _WORKERS))

INTENDED = (
    *(
        Intended(
            f"*/{kind}/*-????????",
            f"spec.{template}.spec.enableServiceLinks",
            "a Service of the namespace that is called `vllm` would set VLLM_PORT, with which vLLM does not start",
        )
        for kind, template in _ENGINE_TEMPLATES
    ),
    *(
        Intended(
            f"*/{kind}/*-????????",
            f"spec.{template}.metadata.labels.llm-d.ai/engine-type",
            "the endpoint picker chooses the names of the metrics by it",
        )
        for kind, template in _ENGINE_TEMPLATES
        if template != _WORKERS
    ),
    *(
        Intended(
            f"*/{kind}/*",
            f"metadata.annotations.modelplane.ai/{name}",
            "what pods are made from, and by which version: they stay until a rollout where only the latter changes",
        )
        for kind in ("Deployment", "LeaderWorkerSet")
        for name in ("pods-source", "renderer")
    ),
    Intended(
        "examples/LeaderWorkerSet/*",
        "spec.leaderWorkerTemplate.leaderTemplate.spec.containers.engine.args",
        "the examples of SGLang serve metrics, by which the endpoint picker knows their load",
    ),
    Intended(
        "cache-huggingface/Job/*",
        "spec.template.spec.containers.hydrate.command",
        "the script: the hub's client is installed from files with known hashes, and without the token; SIGTERM ends it, and what a killed "
        "attempt left is removed",
    ),
    Intended(
        "cache-huggingface/Job/*",
        "spec.template.spec.containers.hydrate.env.MODELPLANE_CLIENT_*",
        "the version of the hub's client is a list of requirements with hashes",
    ),
    Intended(
        "cache-oci/Job/*",
        "spec.template.spec.containers.hydrate.command",
        "the script: SIGTERM ends it, and what the file system denies is no refused credential",
    ),
)


def differences(old: Any, new: Any) -> list[str]:
    """Give the paths at which two objects differ; hashes only where nothing else does."""
    found = list(_differences(old, new, ""))
    return [path for path in found if not path.endswith(_HASHES)] or found


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    before, after = _by_name(old), _by_name(new)
    if before is None or after is None:
        if old != new:
            yield path
        return
    if [name for name in before if name in after] != [name for name in after if name in before] and isinstance(old, list):
        yield path  # the order of a list has a meaning
    for name in {**before, **after}:
        inner = f"{path}.{name}" if path else name
        if name in before and name in after:
            yield from _differences(before[name], after[name], inner)
        else:
            yield inner


def _by_name(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and value and all(isinstance(entry, dict) and "name" in entry for entry in value):
        return {entry["name"]: entry for entry in value}
    return None
