"""Names, namespaces, labels and annotations."""

import re
from collections.abc import Iterator, Mapping

from api_types import labels
from api_types.hints import nearest
from api_types.names import PICKER_LABEL, is_reserved_namespace, may_be_picker
from api_types.prices import UNPRICED, price_milli
from api_types.queues import base_queue_problem
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.resources.inference_gateway import SINGLETON_NAME
from api_types.resources.kinds import BY_KIND
from api_types.resources.model_deployment import (
    ModelDeployment,
    ReplicaTemplateMetadata,
)
from api_types.resources.parts.base_types import ObjectMeta
from api_types.resources.parts.pod_template import PodMetadata
from api_types.validation.picker_flags import parse_picker_flags, platform_flag_problems
from api_types.validation.rules.rule import Findings, RuleContext, Rules
from api_types.validation.wording import one_of

NAME_MAX = 63
PREFIX_MAX = 253
ANNOTATIONS_BYTES_MAX = 256 * 1024

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

# Annotations that users set, and the values that each accepts.
CHOICES: Mapping[str, tuple[str, ...]] = {
    labels.STACK: ("managed", "external", "plan"),
    labels.ROUTING: ("pool", "service"),
    labels.SCHEDULER_TYPE: ("none", "kai", "kueue"),
    labels.CAPACITY_ADAPTER: ("none", "kube", "kueue", "kai"),
    labels.MESH_PROVIDER: ("none", "istio", "gke"),
}


_OF_CLUSTERS = (*CHOICES, labels.TASK_QUEUE, *labels.TAKEN_WHILE_DELETING)


def is_dns_label(text: str) -> bool:
    """Return whether a text is a DNS label of at most 63 characters."""
    return len(text) <= NAME_MAX and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return whether a text is a DNS subdomain of at most 253 characters."""
    return len(text) <= PREFIX_MAX and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Return whether Kubernetes accepts a text as a label value."""
    return not text or (len(text) <= NAME_MAX and _NAME.fullmatch(text) is not None)


def label_key_problem(key: str) -> str:
    """Return the reason why Kubernetes rejects a label or annotation key, or ""."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > PREFIX_MAX or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return (
            f'the prefix of key "{key}" must be a DNS subdomain of at most '
            f"{PREFIX_MAX} characters"
        )
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        return f'"{key}" is not a valid Kubernetes label key'
    return ""


def picker_label_problem(key: str, value: str) -> str:
    """Return the reason why an engine pod may not have a label, or "".

    If the value were the name of a picker, the picker's Service would select the pod.
    """
    if key == PICKER_LABEL and may_be_picker(value):
        return (
            f'"{value}" names an endpoint picker, whose Service selects its pods '
            "by this label; choose another value"
        )
    return ""


def _label_problems(held: Mapping[str, str] | None, *, reserved: bool) -> Iterator[str]:
    for key, value in (held or {}).items():
        if reserved and key.startswith(labels.RESERVED_PREFIX):
            yield f'key "{key}" uses the reserved prefix {labels.RESERVED_PREFIX}'
        problem = label_key_problem(key)
        if problem:
            yield problem
        if not is_label_value(value):
            yield f'"{value}" is not a valid label value (key {key})'


def _annotation_problems(held: Mapping[str, str] | None) -> Iterator[str]:
    for key in held or {}:
        problem = label_key_problem(key)
        if problem:
            yield problem.replace("label key", "annotation key")


def name_is_usable(meta: ObjectMeta, context: RuleContext) -> Findings:
    """Check the name, which becomes a label value and a part of URLs.

    The InferenceGateway is a singleton with a fixed name.
    """
    if context.manifest.kind == "InferenceGateway":
        if meta.name != SINGLETON_NAME:
            yield context.error(
                f"InferenceGateway is a singleton and must be named {SINGLETON_NAME}",
                "name",
            )
    elif len(meta.name) > NAME_MAX:
        yield context.error(
            f"must be at most {NAME_MAX} characters, got {len(meta.name)}", "name"
        )
    elif not _DNS_SUBDOMAIN.fullmatch(meta.name):
        yield context.error(
            f'must be a DNS subdomain: lower-case letters, digits, hyphen, dot; got "{meta.name}"',
            "name",
        )


def namespace_is_usable(meta: ObjectMeta, context: RuleContext) -> Findings:
    """Reject namespaces of the platform.

    On clusters, the workloads of a namespace are in the namespace of the same name.
    """
    info = BY_KIND.get(context.manifest.kind)
    if info is not None and not info.namespaced:
        return
    if not is_dns_label(meta.namespace):
        yield context.error(
            f'must be a DNS label: lower-case letters, digits, hyphen; got "{meta.namespace}"',
            "namespace",
        )
    elif (
        info is not None
        and info.user_may_apply
        and is_reserved_namespace(meta.namespace)
    ):
        yield context.error(
            f'"{meta.namespace}" belongs to the platform; use a namespace of your own',
            "namespace",
        )


def object_labels_are_valid(meta: ObjectMeta, context: RuleContext) -> Findings:
    """Check an object's own labels.

    They may use the reserved prefix, because such labels select clusters.
    """
    for problem in _label_problems(meta.labels, reserved=False):
        yield context.error(problem, "labels")


def object_annotations_are_valid(meta: ObjectMeta, context: RuleContext) -> Findings:
    """Check annotation keys, and Kubernetes' limit on the size of all annotations."""
    for problem in _annotation_problems(meta.annotations):
        yield context.error(problem, "annotations")
    size = sum(
        len(key.encode()) + len(value.encode())
        for key, value in meta.annotations.items()
    )
    if size > ANNOTATIONS_BYTES_MAX:
        yield context.error(
            f"all annotations together must be at most {ANNOTATIONS_BYTES_MAX} bytes, got {size}",
            "annotations",
        )


def replica_labels_are_valid(
    meta: ReplicaTemplateMetadata, context: RuleContext
) -> Findings:
    """Check the labels of replicas and endpoints.

    The prefix modelplane.ai/ is reserved, because the control plane uses labels with it
    to find its objects.
    """
    for problem in _label_problems(meta.labels, reserved=True):
        yield context.error(problem, "labels")


def member_metadata_is_valid(meta: PodMetadata, context: RuleContext) -> Findings:
    """Check the metadata of a pod. Only annotations may use the reserved prefix."""
    for problem in _label_problems(meta.labels, reserved=True):
        yield context.error(problem, "labels")
    for key, value in (meta.labels or {}).items():
        problem = picker_label_problem(key, value)
        if problem:
            yield context.error(f"label {key}: {problem}", "labels")
    for problem in _annotation_problems(meta.annotations):
        yield context.error(problem, "annotations")


def picker_flags_are_of_tenants(
    deployment: ModelDeployment, context: RuleContext
) -> Findings:
    """Reject picker flags that only the platform may set.

    The deployment's events report a text that cannot be parsed.
    """
    try:
        flags = parse_picker_flags(
            deployment.metadata.annotations.get(labels.PICKER_FLAGS, "")
        )
    except ValueError:
        return
    for problem in platform_flag_problems(flags):
        yield context.error(problem, "metadata", "annotations", labels.PICKER_FLAGS)


def cluster_annotations_are_known(
    cluster: InferenceCluster, context: RuleContext
) -> Findings:
    """Check the annotations that configure a cluster, and find typos in them."""
    for key, value in cluster.metadata.annotations.items():
        at = ("metadata", "annotations", key)
        choices = CHOICES.get(key)
        if choices and value not in choices:
            yield context.error(f'must be {one_of(choices)}, got "{value}"', *at)
        if key == labels.TASK_QUEUE:
            problem = base_queue_problem(value)
            if problem:
                yield context.error(problem, *at)
        if key.startswith(labels.RESERVED_PREFIX) and key not in _OF_CLUSTERS:
            meant = nearest(key, _OF_CLUSTERS)
            if meant:
                yield context.warning(f"unknown annotation, did you mean {meant}?", *at)


def price_is_a_number(
    inference_class: InferenceClass, context: RuleContext
) -> Findings:
    """Check the price of a node, by which the profile `cheap` orders clusters."""
    price = inference_class.metadata.annotations.get(labels.PRICE_PER_NODE_HOUR)
    if (
        price is not None
        and price_milli(inference_class.metadata.annotations) == UNPRICED
    ):
        yield context.error(
            f'must be a decimal number such as "12.50", got "{price}"',
            "metadata",
            "annotations",
            labels.PRICE_PER_NODE_HOUR,
        )


RULES: Rules = {
    ObjectMeta: (
        name_is_usable,
        namespace_is_usable,
        object_labels_are_valid,
        object_annotations_are_valid,
    ),
    ReplicaTemplateMetadata: (replica_labels_are_valid,),
    PodMetadata: (member_metadata_is_valid,),
    ModelDeployment: (picker_flags_are_of_tenants,),
    InferenceCluster: (cluster_annotations_are_known,),
    InferenceClass: (price_is_a_number,),
}
