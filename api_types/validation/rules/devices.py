"""Rules for an InferenceClass: provisioning, and matching and claiming of devices."""

from api_types.limits import CLASS_BYTES_MAX
from api_types.resources.inference_class import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    InferenceClassSpec,
    Provisioning,
)
from api_types.validation.rules.rule import Findings, RuleContext, Rules, set_fields

# Limits of the clouds in addition to the limits of the class.
DISK_GB_MAX = 65536
MACHINE_NAME_MAX = 63

_MACHINE_NAMES = {"gke": "machine_type", "eks": "instance_type", "aks": "vm_size"}


def provider_block_is_present(
    provisioning: Provisioning, context: RuleContext
) -> Findings:
    """Require the block of the provider."""
    block = provisioning.provider.lower()
    if getattr(provisioning, block) is None:
        yield context.error(
            f"required because provider is {provisioning.provider}", block
        )


def class_can_be_carried(spec: InferenceClassSpec, context: RuleContext) -> Findings:
    """Limit the size, because each cluster with pools of this class carries a copy."""
    size = len(
        spec.model_dump_json(by_alias=True, exclude_none=True, warnings=False).encode()
    )
    if size > CLASS_BYTES_MAX:
        yield context.error(
            f"must be at most {CLASS_BYTES_MAX} bytes of JSON, got {size}; shorten "
            "description, attributes or capacity"
        )


def provisioning_fits_the_cloud(
    provisioning: Provisioning, context: RuleContext
) -> Findings:
    """Check cloud limits, which the cloud reports only when a pool is created."""
    block = provisioning.provider.lower()
    nodes = getattr(provisioning, block)
    if nodes is None:
        return
    if getattr(nodes, "disk_size_gb", 0) > DISK_GB_MAX:
        yield context.error(
            f"must be between 10 and {DISK_GB_MAX}, got {nodes.disk_size_gb}",
            block,
            "diskSizeGb",
        )
    attribute = _MACHINE_NAMES.get(block)
    length = len(getattr(nodes, attribute)) if attribute else 0
    if attribute and length > MACHINE_NAME_MAX:
        text = f"must be at most {MACHINE_NAME_MAX} characters, got {length}"
        yield context.error(text, block, set_fields(nodes, attribute)[0])


def claim_has_its_target(device: Device, context: RuleContext) -> Findings:
    """Require a device class or an extended resource for a claimed device."""
    if device.claim == "DRA" and device.device_class_name is None:
        default = "" if "claim" in device.model_fields_set else " (the default)"
        advice = "use claim: Synthetic where no driver exists"
        yield context.error(
            f"required because claim is DRA{default}; {advice}", "deviceClassName"
        )
    if device.claim == "DevicePlugin" and device.resource_name is None:
        yield context.error("required because claim is DevicePlugin", "resourceName")


def attribute_has_one_type(
    attribute: DeviceAttribute, context: RuleContext
) -> Findings:
    """Allow one typed value for each attribute."""
    got = set_fields(attribute, "string", "version", "bool_value", "int_value")
    if len(got) != 1:
        shown = ", ".join(got) or "none"
        yield context.error(
            f"set exactly one of string, version, bool, int; got {shown}"
        )


def version_can_be_parsed(attribute: DeviceAttribute, context: RuleContext) -> Findings:
    """Reject a version that cannot be parsed, because it would silently match nothing."""
    if attribute.version is None:
        return
    problem = context.checks.version(attribute.version)
    if problem:
        yield context.error(problem, "version")


def quantity_can_be_parsed(capacity: DeviceCapacity, context: RuleContext) -> Findings:
    """Reject a quantity that cannot be parsed, because it would silently match nothing."""
    problem = context.checks.quantity(capacity.value)
    if problem:
        yield context.error(problem, "value")


RULES: Rules = {
    InferenceClassSpec: (class_can_be_carried,),
    Provisioning: (provider_block_is_present, provisioning_fits_the_cloud),
    Device: (claim_has_its_target,),
    DeviceAttribute: (attribute_has_one_type, version_can_be_parsed),
    DeviceCapacity: (quantity_can_be_parsed,),
}
