"""The base class of all resource models, and the field types that several kinds share.

Three conventions apply to every kind. An optional field that was omitted is `None`,
because the presence of most blocks has a meaning. A list that Kubernetes treats as a
map is annotated with `MapKeys`, which the duplicate check, error paths and the exported
schema read. A field that adds to the general wording of an error is annotated with
`Advice`, so that `validation.wording` contains no code for single fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le
from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    Strict,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from api_types.base import Message
from api_types.labels import GROUP

VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class ResourceModel(Message):
    """The base class of a manifest and of every object in it.

    The text below a field is its description in the JSON Schema.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    renamed_fields: ClassVar[Mapping[str, str]] = {}
    """Fields of other versions that users may still write, and their current names."""
    refused_fields: ClassVar[Mapping[str, str]] = {}
    """Fields that are omitted on purpose, and the error for a user who writes one."""


@dataclass(frozen=True)
class MapKeys:
    """Treats a list as a map.

    No two items may have the same values of these keys, and error paths show the values
    instead of the index.
    """

    keys: tuple[str, ...]
    noun: str
    """The name of an item in errors."""
    unique: bool = True
    """False if duplicates are reported elsewhere and the keys are only for error paths.
    """

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the list type of Kubernetes to the exported schema."""
        exported = handler(schema)
        if self.unique:
            exported |= {
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": list(self.keys),
            }
        return exported


@dataclass(frozen=True)
class Advice:
    """Text that replaces or extends the general wording of an error at this field.

    `{got}` is replaced by the value.
    """

    missing: str = ""
    missing_from_parent: str = ""
    """Like `missing`, but reported at the object that lacks the field."""
    too_few: str = ""
    too_many: str = ""
    out_of_range: str = ""
    choice: str = ""
    pattern: str = ""
    """Like `out_of_range`, for the format of a text. The value follows the message."""
    not_a_string: str = ""


Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Int64 = Annotated[int, Strict(), Ge(INT64_MIN), Le(INT64_MAX)]
NonEmpty = Annotated[str, Field(min_length=1)]
Name63 = Annotated[str, Field(min_length=1, max_length=63)]
Name253 = Annotated[str, Field(min_length=1, max_length=253)]
Labels = Annotated[
    dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)
]
"""Labels of a template: at most 32, with values of at most 63 characters.

A rule checks the keys and characters.
"""

_PERCENT_MAX = 100


def _int_or_percent(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.endswith("%"):
        number = value[:-1]
        if number.isascii() and number.isdigit() and int(number) <= _PERCENT_MAX:
            return value
    raise PydanticCustomError(
        "int_or_percent",
        'must be a whole number of at least 0, or a percentage such as "25%"',
    )


IntOrPercent = Annotated[
    int | str,
    PlainValidator(_int_or_percent),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A count, or a percentage of the replicas as text: `3` or `"25%"`."""


def is_empty(value: Any) -> bool:
    """Return whether a metadata field is omitted from the JSON, as in Kubernetes."""
    return not value


class ObjectMeta(ResourceModel):
    """The identity of an object.

    Users write the first four fields; the control plane sets the rest.
    """

    name: str
    """Unique per kind and namespace: a DNS subdomain of at most 63 characters."""
    namespace: str = Field(default="", exclude_if=is_empty)
    """The tenant. Empty on cluster-scoped kinds."""
    labels: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    """Labels for selectors."""
    annotations: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    """Settings and notes; selectors do not match them."""
    uid: str = Field(default="", exclude_if=is_empty)
    """Unique over time: a new object with the same name has another uid."""
    resource_version: str = Field(default="", exclude_if=is_empty)
    """A decimal number, increased by every change of spec, metadata or status."""
    generation: int = Field(default=0, exclude_if=is_empty)
    """Increased by every change of the spec."""
    creation_timestamp: str = Field(default="", exclude_if=is_empty)
    """RFC 3339, UTC."""
    deletion_timestamp: str = Field(default="", exclude_if=is_empty)
    """Time of the deletion request; empty without one."""


class Manifest(ResourceModel):
    """One object as users write and see it.

    Each kind narrows `spec` and adds its `status`.
    """

    api_version: str = API_VERSION
    """Group and version."""
    kind: str
    """The kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels and annotations."""
    spec: ResourceModel
    """The desired state."""


class LabelSelector(ResourceModel):
    """Selects objects with all these labels; no labels select all objects."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "matchExpressions": (
            "unknown field; only equality is supported, write the pairs as matchLabels"
        )
    }

    match_labels: dict[str, str] | None = None
    """Labels that must all be equal."""


class CredentialsRef(ResourceModel):
    """The entry of the credentials registry for a cloud."""

    type: Literal["ProviderConfig", "ClusterProviderConfig"] = "ClusterProviderConfig"
    """Whether the entry belongs to a namespace or to the whole installation."""
    name: Name253 = "default"
    """Name of the entry."""
