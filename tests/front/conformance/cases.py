"""Cases: requests that both servers answer one after the other.

The files below requests/ have the cases of one group each. A case is a sentence with the
requests before the last one, whose answers are compared. A request is one
of objects.yaml, such as `made`, or

    {METHOD: path, body: ..., type: merge, headers: {...}, anonymous: true}

- Paths begin with `<base>`, `<md>` (the ModelDeployments of a namespace of the case alone),
  `<one>` (the ModelDeployment `one`), `<mr>` and `<icl>`.
- `deployment`, `applied` and `class` stand for a body: an object, changed by the given
  tree. `<absent>` removes a field.
- `text` and `bytes` are bodies as they are sent; `repeated` is a list of equal items.
- A body is JSON and a patch is a merge patch, unless `type` names another type.
- `<uid>`, `<rv>` and `<continue>` are those of the latest answer that has one, `<rv0>` is
  that of the first request, and `<a*70>` is a text of 70 letters.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.front.conformance.comparing import Json, compared
from tests.front.conformance.servers import Answer, Server

FOLDER = Path(__file__).parent / "requests"
BASE = "/apis/modelplane.ai/v1alpha1"
ABSENT = "<absent>"
TYPES = {
    "json": "application/json",
    "yaml": "application/yaml",
    "merge": "application/merge-patch+json",
    "json-patch": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_PATHS = {
    "<one>": "<md>/one",
    "<md>": "<base>/namespaces/<ns>/modeldeployments",
    "<mr>": "<base>/namespaces/<ns>/modelreplicas",
    "<icl>": "<base>/inferenceclasses",
    "<base>": BASE,
}
_REPEATED = re.compile(r"<([^<>]+)\*(\d+)>")
_METHOD = re.compile(r"[A-Z]+")


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    anonymous: bool = False

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a sequence of events."""
        return "watch=" in self.path and "watch=false" not in self.path


@dataclass(frozen=True)
class Case:
    """A sentence, the requests, and the documented differences of the last answers."""

    name: str
    requests: tuple[Request, ...]
    differs: tuple[str, ...] = ()


@cache
def groups() -> Mapping[str, tuple[Case, ...]]:
    """Return the cases of each file."""
    return {
        file.stem: tuple(_case(each) for each in yaml.safe_load(file.read_text()))
        for file in sorted(FOLDER.glob("*.yaml"))
    }


def _case(tree: Json) -> Case:
    steps: list[Any] = []
    for step in tree["send"]:
        steps += objects()["three"] if step == "three" else [step]
    requests = tuple(
        request_of(objects()[step] if isinstance(step, str) else step) for step in steps
    )
    return Case(tree["name"], requests, tuple(tree.get("differs", ())))


@cache
def objects() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(
        (FOLDER.parent / "objects.yaml").read_text()
    )
    return found


def request_of(tree: Mapping[str, Any]) -> Request:
    """Return the request that a tree describes."""
    method = next(key for key in tree if _METHOD.fullmatch(key))
    body = _body(tree)
    default = "merge" if method == "PATCH" else "json"
    media_type = tree.get("type", default if body is not None else "none")
    headers = {**tree.get("headers", {})}
    if media_type != "none":
        headers["Content-Type"] = TYPES.get(media_type, media_type)
    return Request(
        method, _repeated(tree[method]), body, headers, tree.get("anonymous", False)
    )


def _body(tree: Mapping[str, Any]) -> bytes | None:
    for name in ("deployment", "applied", "class"):
        if name in tree:
            return _encoded(changed(objects()[name], tree[name]))
    if "repeated" in tree:
        item, count = tree["repeated"]
        return json.dumps([item] * count).encode()
    if "text" in tree:
        return _repeated(tree["text"]).encode()
    if "bytes" in tree:
        return bytes(tree["bytes"])
    return _encoded(tree["body"]) if "body" in tree else None


def _encoded(tree: Any) -> bytes:
    return _repeated(json.dumps(tree)).encode()


def _repeated(text: str) -> str:
    return _REPEATED.sub(lambda found: found[1] * int(found[2]), text)


def changed(tree: Any, change: Any) -> Any:
    """Return an object with a change; its lists are replaced."""
    if not isinstance(tree, dict) or not isinstance(change, dict):
        return change
    result = {**tree}
    for key, value in change.items():
        result[key] = changed(result[key], value) if key in result else value
        if value == ABSENT:
            del result[key]
    return result


async def answers(
    server: Server, requests: tuple[Request, ...], namespace: str
) -> list[Answer]:
    """Send the requests in order; return the answers."""
    known = {**_PATHS, "<ns>": namespace}
    found: list[Answer] = []
    for number, request in enumerate(requests):
        headers = {key: _filled(value, known) for key, value in request.headers.items()}
        body = request.body
        if body is not None:
            body = _filled(body.decode("latin-1"), known).encode("latin-1")
        answer = await server.ask(
            request.method,
            _filled(request.path, known),
            headers,
            body,
            anonymous=request.anonymous,
        )
        found.append(answer)
        if not request.is_watch:
            _learn(answer.tree, number, known)
    return found


def _filled(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def _learn(tree: Any, number: int, known: dict[str, str]) -> None:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict):
        return
    fields = {"uid": "uid", "resourceVersion": "rv", "continue": "continue"}
    for name, shown in fields.items():
        if value := metadata.get(name):
            known[f"<{shown}>"] = known[f"<{shown}{number}>"] = str(value)


def outcome(requests: tuple[Request, ...], found: list[Answer]) -> Json:
    """Return the status codes and the last answer, in which both servers must agree."""
    last = compared(found[-1], watch=requests[-1].is_watch)
    return {"before": [each.status for each in found[:-1]], **last}
