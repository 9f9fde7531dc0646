"""Parses CloudEvents of KEDA, in binary and structured mode.

They report that a ScaledObject works, fails or is paused, and do not request scaling.
The ScaledObject has the name and namespace of the deployment that it scales.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from api_types.messages.entities import RecordEvent
from api_types.payloads.limits import shortened
from api_types.text.printable import escaped
from front.access.recorded import recorded
from front.scaling.fields import ObjectFields, shown
from front.serving import bodies, errors
from front.serving.requests import EVENTS, RequestedResource, resource_of
from front.store.projection import Tree

STRUCTURED, JSON = "application/cloudevents+json", "application/json"
_PREFIX = "ce-"
_REQUIRED = ("specversion", "id", "source", "type")
_ATTRIBUTES = (*_REQUIRED, "subject")
_VERSION = "1.0"
_ATTRIBUTE_BYTES_MAX = 1024
_DATA_BYTES_MAX = 16 * 1024
_MESSAGE_BYTES_MAX = 900
_OBJECT_TYPES = ("scaledobject", "modeldeployment")

RECORDED: Mapping[str, tuple[Literal["Normal", "Warning"], str]] = {
    "keda.scaledobject.ready.v1": ("Normal", "ScaledObjectReady"),
    "keda.scaledobject.failed.v1": ("Warning", "ScaledObjectFailed"),
    "keda.scaledobject.removed.v1": ("Normal", "ScaledObjectRemoved"),
    "keda.scaledobject.paused.v1": ("Normal", "ScaledObjectPaused"),
    "keda.scaledobject.unpaused.v1": ("Normal", "ScaledObjectUnpaused"),
}
"""The recorded types of events, with the type and reason of the resulting event."""


@dataclass(frozen=True)
class CloudEvent:
    """A received event; `data` is not validated."""

    id: str
    source: str
    type: str
    subject: str
    data: object


def read_event(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """Parse an event in either mode. Raises `RejectedRequest`."""
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() == STRUCTURED:
        tree = bodies.parse_object(body)
        return _event(tree, tree.get("data"))
    attributes: Tree = {
        name: _header(headers, name)
        for name in _ATTRIBUTES
        if _PREFIX + name in headers
    }
    if not attributes:
        raise errors.unsupported_media_type((STRUCTURED, f"{JSON} with ce- headers"))
    bodies.media_type(headers.get("Content-Type", JSON), (JSON,))
    return _event(attributes, bodies.parse(body) if body.strip() else None)


def _header(headers: Mapping[str, str], attribute: str) -> str:
    """Return an attribute of binary mode.

    aiohttp decodes invalid bytes to surrogates. Raises `RejectedRequest` for invalid
    UTF-8.
    """
    try:
        headers[_PREFIX + attribute].encode()
    except UnicodeEncodeError:
        raise errors.bad_request(
            f"the header {_PREFIX}{attribute} must be UTF-8; use percent encoding for "
            "characters outside ASCII"
        ) from None
    return unquote(headers[_PREFIX + attribute])


def _event(tree: Tree, data: object) -> CloudEvent:
    # Events may have further attributes of their sender.
    fields = ObjectFields(
        {name: tree[name] for name in _ATTRIBUTES if name in tree},
        *_named(tree),
        _ATTRIBUTES,
    )
    for name in _ATTRIBUTES:
        fields.text(name, bytes_max=_ATTRIBUTE_BYTES_MAX, required=name in _REQUIRED)
    version = tree.get("specversion")
    if isinstance(version, str) and version not in ("", _VERSION):
        fields.problem("specversion", f"must be {_VERSION}, got {shown(version)}")
    fields.check()
    return CloudEvent(
        tree["id"], tree["source"], tree["type"], tree.get("subject") or "", data
    )


def deployment_of(event: CloudEvent) -> RequestedResource:
    """Return the deployment that an event is about.

    The subject is `/CLUSTER/NAMESPACE/scaledobject/NAME`. Raises `RejectedRequest`.
    """
    fields = ObjectFields({}, *_named({"id": event.id}), _ATTRIBUTES)
    match event.subject.split("/"):
        case ["", _, namespace, kind, name] if kind in _OBJECT_TYPES:
            found = resource_of(
                f"/apis/modelplane.ai/v1alpha1/namespaces/{namespace}"
                f"/modeldeployments/{name}"
            )
            if found:
                return RequestedResource(found.info, namespace, name, EVENTS)
    fields.problem(
        "subject",
        "must be /CLUSTER/NAMESPACE/TYPE/NAME with a TYPE of "
        f"{', '.join(_OBJECT_TYPES)}, got {shown(event.subject)}",
    )
    fields.check()
    raise AssertionError(event.subject)


def report_of(event: CloudEvent, by: str) -> RecordEvent:
    """Return the message to the deployment.

    The same event from the same source has the same request id. Raises
    `RejectedRequest`.
    """
    data = event.data
    fields = ObjectFields(
        data if isinstance(data, dict) else {},
        *_named({"id": event.id}),
        ("reason", "message"),
    )
    if not isinstance(data, dict):
        fields.problem(
            "data", f"must be an object with reason and message, got {shown(data)}"
        )
    reason = fields.text("reason", bytes_max=_DATA_BYTES_MAX)
    message = fields.text("message", bytes_max=_DATA_BYTES_MAX)
    fields.check()
    kind, word = RECORDED[event.type]
    text = escaped(": ".join(filter(None, (reason, message))))
    said = shortened(text, _MESSAGE_BYTES_MAX)
    identity = hashlib.sha256(f"{event.source}\0{event.id}".encode()).hexdigest()[:40]
    return RecordEvent(
        request_id=f"cloudevent-{identity}",
        by=recorded(by),
        type=kind,
        reason=word,
        message=f"{said or word} (from {shown(event.source)})",
    )


def _named(tree: Tree) -> tuple[str, str, str]:
    return "cloudevents.io", "CloudEvent", shown(tree.get("id") or "")
