"""The base class of all resource models, and the field types and blocks that several kinds share.

Three conventions apply in every kind. An optional field that was left out is `None`, because "present or not" is part of the meaning of
most blocks. A list that Kubernetes treats as a map is annotated with `MapKeys`, which the duplicate check, error paths and the exported
schema read. What an error should add to its general wording is an annotation of the field, `Advice`, and not code of `validation.wording`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le
from pydantic import ConfigDict, Field, GetJsonSchemaHandler, PlainValidator, Strict, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from api_types.base import Message
from api_types.labels import GROUP

VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class ResourceModel(Message):
    """The base class of a manifest and of every object in it; the text below a field is its description in the JSON Schema."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    renamed_fields: ClassVar[Mapping[str, str]] = {}
    """Fields of other versions that a user may still write here, and their present names."""
    refused_fields: ClassVar[Mapping[str, str]] = {}
    """Fields that are not here on purpose, and the error for a user who writes one."""


@dataclass(frozen=True)
class MapKeys:
    """Treats a list as a map: no two items may have the same values of these keys, and error paths show them instead of the index."""

    keys: tuple[str, ...]
    noun: str
    """The name of an item in errors."""
    unique: bool = True
    """False where duplicates are reported elsewhere and the keys are only for error paths."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the list type of Kubernetes to the exported schema."""
        exported = handler(schema)
        if self.unique:
            exported |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}
        return exported


@dataclass(frozen=True)
class Advice:
    """Text instead of, or after, the general wording of an error at this field. `{got}` is filled in."""

    missing: str = ""
    missing_from_parent: str = ""
    """As `missing`, but reported at the object that lacks the field."""
    too_few: str = ""
    too_many: str = ""
    out_of_range: str = ""
    choice: str = ""
    pattern: str = ""
    """As `out_of_range`, of a text that must have a form: it stands for the form, and what was written follows."""
    not_a_string: str = ""


Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Int64 = Annotated[int, Strict(), Ge(INT64_MIN), Le(INT64_MAX)]
NonEmpty = Annotated[str, Field(min_length=1)]
Name63 = Annotated[str, Field(min_length=1, max_length=63)]
Name253 = Annotated[str, Field(min_length=1, max_length=253)]
Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
"""Labels of a template: at most 32, values of at most 63 characters; keys and alphabet are checked by rule."""

_PERCENT_MAX = 100


def _int_or_percent(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.endswith("%"):
        number = value[:-1]
        if number.isascii() and number.isdigit() and int(number) <= _PERCENT_MAX:
            return value
    raise PydanticCustomError("int_or_percent", 'must be a whole number of at least 0, or a percentage such as "25%"')


IntOrPercent = Annotated[
    int | str,
    PlainValidator(_int_or_percent),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]
"""A count, or a share of the replicas as text: `3` or `"25%"`."""


def is_empty(value: Any) -> bool:
    """Whether a metadata field is left out of the JSON, as Kubernetes does."""
    return not value


class ObjectMeta(ResourceModel):
    """The identity of an object. Users write the first four fields; the control plane sets the rest."""

    name: str
    """Unique per kind and namespace: a DNS subdomain of at most 63 characters."""
    namespace: str = Field(default="", exclude_if=is_empty)
    """The tenant. Empty on cluster-scoped kinds."""
    labels: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    """What selectors match."""
    annotations: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    """Settings and notes; selectors do not match them."""
    uid: str = Field(default="", exclude_if=is_empty)
    """Unique over time: an object that is created again under the same name has another one."""
    resource_version: str = Field(default="", exclude_if=is_empty)
    """A decimal number, increased by every change of spec, metadata or status."""
    generation: int = Field(default=0, exclude_if=is_empty)
    """Increased by every change of the spec."""
    creation_timestamp: str = Field(default="", exclude_if=is_empty)
    """RFC 3339, UTC."""
    deletion_timestamp: str = Field(default="", exclude_if=is_empty)
    """When deletion was requested; empty while it was not."""


class Manifest(ResourceModel):
    """One object as users write it and as it is shown. Each kind narrows `spec` and adds its `status`."""

    api_version: str = API_VERSION
    """Group and version."""
    kind: str
    """Which of the kinds this is."""
    metadata: ObjectMeta
    """Name, namespace, labels and annotations."""
    spec: ResourceModel
    """The desired state."""


class LabelSelector(ResourceModel):
    """Objects whose labels have every pair; without pairs, all objects."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "matchExpressions": "unknown field; only equality is supported, write the pairs as matchLabels"
    }

    match_labels: dict[str, str] | None = None
    """Pairs that must all be equal."""


class CredentialsRef(ResourceModel):
    """Which entry of the credentials registry a cloud is reached with."""

    type: Literal["ProviderConfig", "ClusterProviderConfig"] = "ClusterProviderConfig"
    """Whether the entry belongs to a namespace or to the whole installation."""
    name: Name253 = "default"
    """Name of the entry."""
