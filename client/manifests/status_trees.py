"""Manifests with the status that they were exported with.

`apply` ignores a status, because only the control plane may write one. Planning and
rendering need it: nothing is placed on a cluster that is not Ready, and a replica that
is being deleted still occupies its nodes. So this module restores the status that
admission drops. It checks only the fields that are read, because the status may come
from a newer release or be written by hand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from api_types.resources.kinds import BY_KIND
from api_types.validation.manifests import Document, dump
from client.manifests.documents import admit_documents, print_warnings, read_documents
from fleet_client.errors import Refused
from fleet_client.refs.tree import Tree
from scheduler import cluster_view

# The fields of a status that placement and rendering read. A list has the kind ("" for
# all), its field, and the key that each of its objects must have.
_OBJECTS = ("gateway", "cache")
_LISTS = (
    ("", "conditions", "type"),
    ("InferenceCluster", "gpuPools", "name"),
    ("ModelCache", "clusters", "name"),
)
_KEPT = ("uid", "generation", "deletionTimestamp")


def read_trees(files: Sequence[str] | None, namespace: str | None) -> list[Tree]:
    """Read, check and complete the objects of files, in document order.

    Secrets and ConfigMaps are left out. Raise `Refused` with all problems.
    """
    documents = read_documents(files)
    admitted = admit_documents(documents, namespace)
    print_warnings(admitted)
    problems: list[str] = []
    trees: list[Tree] = []
    for document, one in zip(documents, admitted, strict=True):
        if one.manifest.kind not in BY_KIND:
            continue
        tree = _completed(dump(one.manifest), document)
        problems += _status_problems(tree)
        trees.append(tree)
    if problems:
        raise Refused(
            "the status of some objects cannot be read",
            details=problems,
            next_step="fix it, or leave status out",
        )
    return trees


def _completed(tree: Tree, document: Document) -> Tree:
    metadata = document.get("metadata")
    written = metadata if isinstance(metadata, Mapping) else {}
    tree["metadata"] |= {
        key: _plain(written[key]) for key in _KEPT if written.get(key) is not None
    }
    if isinstance(document.get("status"), Mapping):
        tree["status"] = _plain(document["status"])
    return tree


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): _plain(item) for key, item in value.items() if item is not None
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _status_problems(tree: Tree) -> list[str]:
    status = tree.get("status") or {}
    title = f"{tree['kind']} {tree['metadata']['name']}"
    problems = [
        f"{title}: status.{field}: must be an object"
        for field in _OBJECTS
        if not isinstance(status.get(field, {}), Mapping)
    ]
    for kind, field, key in _LISTS:
        if kind in {"", tree["kind"]} and not _is_list_with(key, status.get(field, [])):
            problems.append(
                f"{title}: status.{field}: must be a list of objects that each have {key}"
            )
    if tree["kind"] == "InferenceCluster" and not problems:
        try:
            cluster_view(tree)
        except ValueError as error:
            problems.append(str(error))  # the message names the field
    return problems


def _is_list_with(key: str, rows: object) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, Mapping) and isinstance(row.get(key), str) for row in rows
    )
