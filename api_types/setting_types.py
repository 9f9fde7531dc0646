"""The types of settings' values.

Each type explains in words why it rejects a value.

Rendered objects contain these values. A value that a cluster would reject is therefore
rejected when the settings are read, together with its key.
"""

import json
import re
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from api_types.limits import CHART_VALUES_MAX
from api_types.model_sources import read_image
from api_types.names import is_reserved_namespace
from api_types.pins import images
from api_types.pins.charts import INFERENCE_EXTENSION_VERSION, VALUES, VERSIONS

_YEAR_SECONDS = 366 * 24 * 3600
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_SUBDOMAIN_MAX = 253
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|[kMGTPE]|[KMGTPE]i)?")
_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_HOST_AND_PORT = re.compile(
    r"(?P<host>[^\s:/@\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})"
)
# The limit of `ServingStack.spec.versions`.
_CHART_VERSION = re.compile(
    r"v?[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(?![0-9])[0-9A-Za-z.+-]{0,9}"
)
_TOLERATION_FIELDS = ("key", "operator", "value", "effect")
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_PORT_MAX = 65535
_URL_MAX = 1024
# The name of an image comes after the name of the mirror.
_MIRROR_MAX = 127

Network = IPv4Network | IPv6Network

MIRROR = "mirror"
"""The value of `workloads.namespace` for a namespace per deployment.

The namespace on the cluster has the same name as in the control plane.
"""

UNVERSIONED = "unversioned"
"""The name, in `modelplane workers`, of the workers without a Worker Deployment."""


AdoptRenderer = Literal["OnRestart", "Rolling"]
"""The time at which pods are replaced after the renderer or a setting has changed."""


def _image(text: str) -> str:
    reference = read_image(text)
    if not (reference.tag or reference.digest):
        raise ValueError("must name a digest (`image@sha256:...`) or at least a tag")
    return text


def _picker_release(text: str) -> str:
    if images.picker_release(text) not in images.PICKER_RELEASES:
        known = ", ".join(f"v{release}" for release in sorted(images.PICKER_RELEASES))
        raise ValueError(
            f"its tag must begin with one of {known}, because plugin names and "
            "flags differ between releases"
        )
    return text


def _mirror(text: str) -> str:
    if not text:
        return text
    if len(text) > _MIRROR_MAX:
        raise ValueError(f"must have at most {_MIRROR_MAX} characters")
    reference = read_image(f"{text}/image")
    if not reference.host or reference.tag or reference.digest:
        raise ValueError(
            "must be the host of a registry, or a path in it, such as "
            "`registry.example.com/mirror`, without a tag"
        )
    return text


def _is_subdomain(text: str) -> bool:
    return len(text) <= _SUBDOMAIN_MAX and bool(_SUBDOMAIN.fullmatch(text))


def _object_name(text: str) -> str:
    if not _is_subdomain(text):
        raise ValueError(
            "must be the name of an object: lower-case letters, digits, '-' and '.'"
        )
    return text


def _optional_object_name(text: str) -> str:
    return _object_name(text) if text else text


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(
            f"must be `{MIRROR}` or a namespace: up to 63 lower-case letters, digits and '-'"
        )
    if is_reserved_namespace(text):
        raise ValueError("belongs to the platform; name another namespace")
    return text


def _qualified(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if not _KEY_NAME.fullmatch(name) or (slash and not _is_subdomain(prefix)):
        raise ValueError("must be a name such as `example.com/gpu`")
    return text


def _refused_annotation(text: str) -> str:
    for begins, ends in (("*.", "/"), ("", "/"), ("", ".")):
        if (
            text.startswith(begins)
            and text.endswith(ends)
            and _is_subdomain(text.removeprefix(begins).removesuffix(ends))
        ):
            return text
    return _qualified(text)


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise ValueError("must be a quantity of Kubernetes, such as `500m` or `2Gi`")
    return text


def _optional_quantity(text: str) -> str:
    return _quantity(text) if text else text


def _deployment_name(text: str) -> str:
    # Temporal joins the name and the build id with '.' or ':'.
    if text and not _LABEL.fullmatch(text):
        raise ValueError("must have up to 63 lower-case letters, digits and '-'")
    return text


def _build_id(text: str) -> str:
    if text and not _KEY_NAME.fullmatch(text):
        raise ValueError(
            "must have up to 63 letters, digits, '-', '.' and '_', like a label "
            "value; `git describe --always --dirty` prints one"
        )
    if text == UNVERSIONED:
        raise ValueError(
            f"must not be `{UNVERSIONED}`, which stands for workers without versioning"
        )
    return text


def _address(text: str) -> str:
    found = _HOST_AND_PORT.fullmatch(text)
    if not found or int(found["port"]) > _PORT_MAX:
        raise ValueError("must be host:port, such as `127.0.0.1:7233`")
    return text


def _optional_address(text: str) -> str:
    return _address(text) if text else text


def _url(text: str) -> str:
    problem = "must be an address that begins with http:// or https://"
    try:
        parts = urlsplit(text)
        usable = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        raise ValueError(problem) from None
    if (
        not usable
        or len(text) > _URL_MAX
        or not text.isascii()
        or any(each.isspace() or not each.isprintable() for each in text)
    ):
        raise ValueError(problem)
    if "@" in parts.netloc:
        raise ValueError(
            "must not contain a user or password: it is written into pods, "
            "where many can read it"
        )
    return text


def _optional_url(text: str) -> str:
    return _url(text) if text else text


def _chart_mirror(text: str) -> str:
    # The parts of an `oci://` address are the parts of an https:// address.
    if text:
        _url(
            text.replace("oci://", "https://", 1) if text.startswith("oci://") else text
        )
        if "?" in text or "#" in text:
            raise ValueError("must have neither query nor fragment")
    return text.rstrip("/")


def _chart_versions(values: dict[str, str]) -> dict[str, str]:
    for name, version in values.items():
        if name not in VERSIONS:
            raise ValueError(
                f"{name}: no such component; the versions of {', '.join(VERSIONS)} can be set"
            )
        if not _CHART_VERSION.fullmatch(version):
            raise ValueError(
                f"{name}: {version!r} is not a version, such as {VERSIONS[name]}"
            )
    extension = values.get("inferenceExtension", INFERENCE_EXTENSION_VERSION)
    if extension != INFERENCE_EXTENSION_VERSION:
        raise ValueError(
            f"inferenceExtension: this release contains the definitions of "
            f"{INFERENCE_EXTENSION_VERSION}, not of {extension}; newer definitions that "
            "you install yourself are kept"
        )
    return values


def _chart_values(values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for name in values:
        if name not in VALUES:
            raise ValueError(
                f"{name}: no such component; values of {', '.join(VALUES)} can be set"
            )
    if len(json.dumps(values)) > CHART_VALUES_MAX:
        raise ValueError(
            f"must have at most {CHART_VALUES_MAX} bytes as JSON, because each stack "
            "carries them"
        )
    return values


def _tolerations(values: list[dict[str, str]]) -> list[dict[str, str]]:
    for at, toleration in enumerate(values):
        if problem := _toleration_problem(toleration):
            raise ValueError(f"entry {at}: {problem}")
    return values


def _toleration_problem(toleration: dict[str, str]) -> str:
    if wrong := sorted(set(toleration) - set(_TOLERATION_FIELDS)):
        return f"{', '.join(wrong)}: a toleration has {', '.join(_TOLERATION_FIELDS)}"
    operator = toleration.get("operator", "Equal")
    if operator not in ("Exists", "Equal"):
        return f"operator: must be Exists or Equal, got {operator!r}"
    if operator == "Equal" and not toleration.get("key"):
        return "needs a key, or operator: Exists for every taint"
    if operator == "Exists" and "value" in toleration:
        return "with operator: Exists it has no value"
    effect = toleration.get("effect", _TAINT_EFFECTS[0])
    if effect not in _TAINT_EFFECTS:
        return f"effect: must be one of {', '.join(_TAINT_EFFECTS)}, got {effect!r}"
    return ""


def _affinity(value: dict[str, Any]) -> dict[str, Any]:
    if wrong := sorted(set(value) - set(_AFFINITIES)):
        raise ValueError(
            f"{', '.join(wrong)}: an affinity has {', '.join(_AFFINITIES)}"
        )
    return value


def _requests(values: dict[str, str]) -> dict[str, str]:
    for name, amount in values.items():
        try:
            _qualified(name)
            _quantity(amount)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return values


def _picker_flags(values: dict[str, str]) -> dict[str, str]:
    wrong = [name for name in values if not _FLAG.fullmatch(name)]
    if wrong:
        names = ", ".join(map(repr, wrong))
        raise ValueError(
            f"{names}: the name of a flag is written in a-z, 0-9 and '-', without "
            "leading '-'"
        )
    return values


def _text(value: Any) -> Any:
    """Return a number or a boolean as its text in a pod or on a command line."""
    return str(value).lower() if isinstance(value, bool | int | float) else value


_Text = Annotated[str, BeforeValidator(_text)]
Seconds = Annotated[int, Field(ge=0, le=_YEAR_SECONDS)]
IMAGE_CHECK = AfterValidator(_image)
Image = Annotated[str, IMAGE_CHECK]
PickerImage = Annotated[str, IMAGE_CHECK, AfterValidator(_picker_release)]
Mirror = Annotated[str, AfterValidator(_mirror)]
ChartMirror = Annotated[str, AfterValidator(_chart_mirror)]
ChartVersions = Annotated[dict[str, str], AfterValidator(_chart_versions)]
ChartValues = Annotated[dict[str, dict[str, Any]], AfterValidator(_chart_values)]
Tolerations = Annotated[list[dict[str, str]], AfterValidator(_tolerations)]
Affinity = Annotated[dict[str, Any], AfterValidator(_affinity)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
OptionalObjectName = Annotated[str, AfterValidator(_optional_object_name)]
WorkloadNamespace = Annotated[str, AfterValidator(_namespace)]
QualifiedName = Annotated[str, AfterValidator(_qualified)]
RefusedAnnotation = Annotated[str, AfterValidator(_refused_annotation)]
Requests = Annotated[dict[str, _Text], AfterValidator(_requests)]
PickerFlags = Annotated[dict[str, _Text], AfterValidator(_picker_flags)]
OptionalQuantity = Annotated[str, AfterValidator(_optional_quantity)]
DeploymentName = Annotated[str, AfterValidator(_deployment_name)]
BuildId = Annotated[str, AfterValidator(_build_id)]
Address = Annotated[str, AfterValidator(_address)]
OptionalAddress = Annotated[str, AfterValidator(_optional_address)]
Url = Annotated[str, AfterValidator(_url)]
OptionalUrl = Annotated[str, AfterValidator(_optional_url)]
