"""The messages of KEDA's external scaler.

They are described here instead of generated, because seven small messages do not
justify another build tool. Field numbers come from KEDA's `externalscaler.proto`. Old
releases of KEDA, which do not support fractions, use `targetSize` and `metricValue`.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "externalscaler.ExternalScaler"
_PACKAGE = "externalscaler"
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "text": _Field.TYPE_STRING,
    "flag": _Field.TYPE_BOOL,
    "whole": _Field.TYPE_INT64,
    "number": _Field.TYPE_DOUBLE,
}

_MESSAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "ScaledObjectRef": (
        ("name", "text"),
        ("namespace", "text"),
        ("scalerMetadata", "*ScaledObjectRef.ScalerMetadataEntry"),
    ),
    "IsActiveResponse": (("result", "flag"),),
    "GetMetricSpecResponse": (("metricSpecs", "*MetricSpec"),),
    "MetricSpec": (
        ("metricName", "text"),
        ("targetSize", "whole"),
        ("targetSizeFloat", "number"),
    ),
    "GetMetricsRequest": (
        ("scaledObjectRef", "ScaledObjectRef"),
        ("metricName", "text"),
    ),
    "GetMetricsResponse": (("metricValues", "*MetricValue"),),
    "MetricValue": (
        ("metricName", "text"),
        ("metricValue", "whole"),
        ("metricValueFloat", "number"),
    ),
}
"""The fields of each message, in the order of their numbers.

Types that are messages are named; `*` marks repeated ones.
"""


def _add_fields(message: Any, fields: tuple[tuple[str, str], ...]) -> None:
    for number, (name, kind) in enumerate(fields, 1):
        field = message.field.add(
            name=name, number=number, json_name=name, label=_Field.LABEL_OPTIONAL
        )
        if kind in _TYPES:
            field.type = _TYPES[kind]
            continue
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind.removeprefix('*')}"
        if kind.startswith("*"):
            field.label = _Field.LABEL_REPEATED


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="externalscaler.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        _add_fields(message, fields)
        if name == "ScaledObjectRef":
            entry = message.nested_type.add(name="ScalerMetadataEntry")
            entry.options.map_entry = True
            _add_fields(entry, (("key", "text"), ("value", "text")))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = {
        name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _MESSAGES
    }
    return {name: message_factory.GetMessageClass(each) for name, each in types.items()}


_CLASSES = _classes()
ScaledObjectRef: Any = _CLASSES["ScaledObjectRef"]
IsActiveResponse: Any = _CLASSES["IsActiveResponse"]
GetMetricSpecResponse: Any = _CLASSES["GetMetricSpecResponse"]
GetMetricsRequest: Any = _CLASSES["GetMetricsRequest"]
GetMetricsResponse: Any = _CLASSES["GetMetricsResponse"]
