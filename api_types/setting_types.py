"""What a value of a setting may be: each type says in words why it refuses one.

Rendered objects are made of these values, so what a cluster would refuse is refused when the settings are read, with the key.
"""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from api_types.model_sources import read_image
from api_types.names import is_reserved_namespace
from api_types.pins import images
from api_types.pins.charts import CHANGEABLE

_YEAR_SECONDS = 366 * 24 * 3600
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_MAX = 253
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|[kMGTPE]|[KMGTPE]i)?")
_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_HOST_AND_PORT = re.compile(r"(?P<host>[^\s:/@\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
# As short as `ServingStack.spec.versions` takes it.
_CHART_VERSION = re.compile(r"v?[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(?![0-9])[0-9A-Za-z.+-]{0,9}")
_PORT_MAX = 65535
_URL_MAX = 1024
# Of an image, whose own name comes after it.
_MIRROR_MAX = 127

MIRROR = "mirror"
"""The value of `workloads.namespace` for a namespace per deployment, named as on the control plane."""

UNVERSIONED = "unversioned"
"""The name of the workers without a Worker Deployment in `modelplane workers`."""


AdoptRenderer = Literal["OnRestart", "Rolling"]
"""When pods are replaced that another renderer, or other settings, would make otherwise."""


def _image(text: str) -> str:
    reference = read_image(text)
    if not (reference.tag or reference.digest):
        raise ValueError("must name a digest (`image@sha256:...`) or at least a tag")
    return text


def _picker_release(text: str) -> str:
    if images.picker_release(text) not in images.PICKER_RELEASES:
        known = ", ".join(f"v{release}" for release in sorted(images.PICKER_RELEASES))
        raise ValueError(f"its tag must begin with one of {known}, because plugin names and flags differ between releases")
    return text


def _mirror(text: str) -> str:
    if not text:
        return text
    if len(text) > _MIRROR_MAX:
        raise ValueError(f"must have at most {_MIRROR_MAX} characters")
    reference = read_image(f"{text}/image")
    if not reference.host or reference.tag or reference.digest:
        raise ValueError("must be the host of a registry, or a folder there, such as `registry.example.com/mirror`, without a tag")
    return text


def _is_subdomain(text: str) -> bool:
    return len(text) <= _SUBDOMAIN_MAX and bool(_SUBDOMAIN.fullmatch(text))


def _object_name(text: str) -> str:
    if not _is_subdomain(text):
        raise ValueError("must be the name of an object: lower-case letters, digits, '-' and '.'")
    return text


def _optional_object_name(text: str) -> str:
    return _object_name(text) if text else text


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"must be `{MIRROR}` or a namespace: up to 63 lower-case letters, digits and '-'")
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
        if text.startswith(begins) and text.endswith(ends) and _is_subdomain(text.removeprefix(begins).removesuffix(ends)):
            return text
    return _qualified(text)


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise ValueError("must be a quantity of Kubernetes, such as `500m` or `2Gi`")
    return text


def _optional_quantity(text: str) -> str:
    return _quantity(text) if text else text


def _deployment_name(text: str) -> str:
    # Temporal joins name and build with '.' or ':'.
    if text and not _LABEL.fullmatch(text):
        raise ValueError("must have up to 63 lower-case letters, digits and '-'")
    return text


def _build_id(text: str) -> str:
    if text and not _KEY_NAME.fullmatch(text):
        raise ValueError(
            "must have up to 63 letters, digits, '-', '.' and '_', as the value of a label does; `git describe --always --dirty` prints one"
        )
    if text == UNVERSIONED:
        raise ValueError(f"must not be `{UNVERSIONED}`, which stands for workers without versioning")
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
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise ValueError(problem) from None
    if not usable or len(text) > _URL_MAX or not text.isascii() or any(each.isspace() or not each.isprintable() for each in text):
        raise ValueError(problem)
    if "@" in parts.netloc:
        raise ValueError("must hold no user and no password: it is written into pods, where many can read it")
    return text


def _optional_url(text: str) -> str:
    return _url(text) if text else text


def _chart_mirror(text: str) -> str:
    # An `oci://` has the parts of an https:// address.
    if text:
        _url(text.replace("oci://", "https://", 1) if text.startswith("oci://") else text)
        if "?" in text or "#" in text:
            raise ValueError("must have neither query nor fragment")
    return text.rstrip("/")


def _chart_versions(values: dict[str, str]) -> dict[str, str]:
    for name, version in values.items():
        if name not in CHANGEABLE:
            raise ValueError(f"{name}: no such component; the versions of {', '.join(CHANGEABLE)} can be set")
        if not _CHART_VERSION.fullmatch(version):
            raise ValueError(f"{name}: {version!r} is not a version, such as {CHANGEABLE[name].version}")
    return values


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
        raise ValueError(f"{', '.join(map(repr, wrong))}: the name of a flag is written in a-z, 0-9 and '-', without leading '-'")
    return values


def _text(value: Any) -> Any:
    """Take a number or a boolean as the text that it is written as in a pod or on a command line."""
    return str(value).lower() if isinstance(value, bool | int | float) else value


_Text = Annotated[str, BeforeValidator(_text)]
Seconds = Annotated[int, Field(ge=0, le=_YEAR_SECONDS)]
IMAGE_CHECK = AfterValidator(_image)
Image = Annotated[str, IMAGE_CHECK]
PickerImage = Annotated[str, IMAGE_CHECK, AfterValidator(_picker_release)]
Mirror = Annotated[str, AfterValidator(_mirror)]
ChartMirror = Annotated[str, AfterValidator(_chart_mirror)]
ChartVersions = Annotated[dict[str, str], AfterValidator(_chart_versions)]
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
