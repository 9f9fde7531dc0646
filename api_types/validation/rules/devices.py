"""What an InferenceClass must keep: its recipe fits its cloud, and every device can be matched and claimed."""

from api_types.resources.inference_class import Device, DeviceAttribute, DeviceCapacity, Provisioning
from api_types.validation.rules.rule import Findings, Here, Rules, set_fields

# Limits that the clouds' own cluster kinds put on top of the class.
DISK_GB_MAX = 65536
MACHINE_NAME_MAX = 63

_MACHINE_NAMES = {"gke": "machine_type", "eks": "instance_type", "aks": "vm_size"}


def provider_block_is_present(provisioning: Provisioning, here: Here) -> Findings:
    """Ask for the recipe of the cloud that is named."""
    block = provisioning.provider.lower()
    if getattr(provisioning, block) is None:
        yield here.fault(f"required because provider is {provisioning.provider}", block)


def recipe_fits_the_cloud(provisioning: Provisioning, here: Here) -> Findings:
    """Keep bounds that would otherwise show up long after the class was accepted, when a pool is created."""
    block = provisioning.provider.lower()
    recipe = getattr(provisioning, block)
    if recipe is None:
        return
    if getattr(recipe, "disk_size_gb", 0) > DISK_GB_MAX:
        yield here.fault(f"must be between 10 and {DISK_GB_MAX}, got {recipe.disk_size_gb}", block, "diskSizeGb")
    attribute = _MACHINE_NAMES.get(block)
    if attribute and len(getattr(recipe, attribute)) > MACHINE_NAME_MAX:
        wire = set_fields(recipe, attribute)[0]
        yield here.fault(f"must be at most {MACHINE_NAME_MAX} characters, got {len(getattr(recipe, attribute))}", block, wire)


def claim_names_its_means(device: Device, here: Here) -> Findings:
    """Ask a device that is claimed to say through what."""
    if device.claim == "DRA" and device.device_class_name is None:
        default = "" if "claim" in device.model_fields_set else " (the default)"
        advice = "use claim: Synthetic where no driver exists"
        yield here.fault(f"required because claim is DRA{default}; {advice}", "deviceClassName")
    if device.claim == "DevicePlugin" and device.resource_name is None:
        yield here.fault("required because claim is DevicePlugin", "resourceName")


def attribute_has_one_type(attribute: DeviceAttribute, here: Here) -> Findings:
    """Allow one typed value for each attribute."""
    got = set_fields(attribute, "string", "version", "bool_value", "int_value")
    if len(got) != 1:
        yield here.fault(f"set exactly one of string, version, bool, int; got {', '.join(got) or 'none'}")


def version_can_be_read(attribute: DeviceAttribute, here: Here) -> Findings:
    """Refuse a version that cannot be read: it would match nothing, in silence."""
    if attribute.version is not None and (problem := here.checks.version(attribute.version)):
        yield here.fault(problem, "version")


def quantity_can_be_read(capacity: DeviceCapacity, here: Here) -> Findings:
    """Refuse a quantity that cannot be read: it would match nothing, in silence."""
    if problem := here.checks.quantity(capacity.value):
        yield here.fault(problem, "value")


RULES: Rules = {
    Provisioning: (provider_block_is_present, recipe_fits_the_cloud),
    Device: (claim_names_its_means,),
    DeviceAttribute: (attribute_has_one_type, version_can_be_read),
    DeviceCapacity: (quantity_can_be_read,),
}
