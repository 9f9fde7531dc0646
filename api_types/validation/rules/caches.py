"""Rules for caches and serving stacks."""

from api_types.model_sources import is_bucket, is_endpoint, is_file_pattern, is_prefix, is_region, is_repository_id, is_revision, read_image
from api_types.resources.model_cache import SOURCE_BLOCKS, CacheVolume, HuggingFaceModel, ModelCacheSpec, OciModel, S3Model
from api_types.resources.serving_stack import ServingStackSpec
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_PATTERN_HINT = "use letters, digits, spaces, ._-/+=@,~() and the wildcards * ? [ ] !, such as *.safetensors or original/*"


def source_block_is_present(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Require the block of the named source."""
    block = SOURCE_BLOCKS[spec.source]
    if block not in spec.wire():
        yield context.error(f"required because source is {spec.source}", block)


def repository_id_is_valid(model: HuggingFaceModel, context: RuleContext) -> Findings:
    """Reject what the hub does not accept: it takes `owner/name` and `name`."""
    if not is_repository_id(model.repo):
        yield context.error("not a repository id; write owner/name or name, of letters, digits, dot, underscore and hyphen", "repo")


def revision_is_valid(model: HuggingFaceModel, context: RuleContext) -> Findings:
    """Reject what is neither branch, tag nor commit."""
    if model.revision and not is_revision(model.revision):
        yield context.error("not a revision; use letters, digits, dot, underscore, slash and hyphen, no hyphen first", "revision")


def file_patterns_are_valid(model: HuggingFaceModel, context: RuleContext) -> Findings:
    """Reject what could match no file, or would mean something else to the Job that gets it."""
    for field, patterns in (("allowPatterns", model.allow_patterns), ("ignorePatterns", model.ignore_patterns)):
        for index, pattern in enumerate(patterns or ()):
            if not is_file_pattern(pattern):
                yield context.error(f"{pattern!r} is not a pattern of files; {_PATTERN_HINT}", f"{field}[{index}]")


def image_reference_is_valid(model: OciModel, context: RuleContext) -> Findings:
    """Reject what no registry has: the reference becomes a path there, and an argument of the program that unpacks it."""
    try:
        read_image(model.image)
    except ValueError as error:
        yield context.error(f"not an image reference: {error}; write registry/name:tag or registry/name@digest", "image")


def bucket_is_valid(model: S3Model, context: RuleContext) -> Findings:
    """Reject what is no place in a bucket: each part becomes a part of an address, and is given to the Job."""
    if not is_bucket(model.bucket):
        yield context.error("not a bucket; use 3 to 63 lower-case letters, digits, dots and hyphens, no hyphen at either end", "bucket")
    if model.prefix is not None and not is_prefix(model.prefix):
        yield context.error("not a prefix; write folders separated by single slashes, such as models/qwen, none in front", "prefix")
    if model.endpoint is not None and not is_endpoint(model.endpoint):
        yield context.error("not an endpoint; write https://HOST or https://HOST:PORT (1 to 65535), with nothing behind it", "endpoint")
    if model.region is not None and not is_region(model.region):
        yield context.error("not a region; use lower-case letters, digits and hyphens, such as eu-central-1", "region")
    if model.endpoint is None and model.region is None:
        yield context.error("required unless endpoint is set: it says where on AWS the bucket is", "region")


def volume_serves_one_node(volume: CacheVolume, context: RuleContext) -> Findings:
    """Warn of a volume that pods on several nodes cannot mount: the second would wait for ever, and no object says why it was chosen."""
    if volume.access_mode == "ReadWriteOnce" and not volume.node_local:
        text = "pods on one node at a time can mount it: have one replica per cluster, with all its pods on one node, or use ReadWriteMany"
        yield context.warning(text, "accessMode")


def image_is_mounted_alone(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Reject what means nothing where pods mount the image itself: it would be asked for, and silently have no effect."""
    volume, oci = spec.volume, spec.oci
    if volume is None or not volume.image:
        return
    if spec.source != "OCI":
        yield context.error(f"only images are mounted so, and source is {spec.source}; remove it, or use source OCI", "volume", "image")
    for field, given in (("accessMode", volume.access_mode != "ReadWriteMany"), ("storageClassName", volume.storage_class_name)):
        if given:
            yield context.error("no volume is made for volume.image, which nodes pull; remove one of them", "volume", field)
    for field, unused in (("plainHTTP", oci and oci.plain_http), ("scratch", oci and oci.scratch != "claim")):
        if unused:
            yield context.error(
                "no Job unpacks an image with volume.image, which nodes pull as they are configured; remove it", "oci", field
            )
    if spec.hydration:
        yield context.error("no Job runs for volume.image, which nodes pull as they are configured; remove it", "hydration")


def pods_can_fill_their_own_volume(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Reject what would be without effect, or missing, where each pod of an engine fills a volume of its own."""
    volume, hydration = spec.volume, spec.hydration
    if volume is None or not volume.node_local:
        return
    if volume.image:
        yield context.error("an image is on the node without a volume; remove volume.nodeLocal or volume.image", "volume", "nodeLocal")
    elif not volume.storage_class_name:
        yield context.error(
            "required with volume.nodeLocal: name a class of volumes on the disks of nodes, which binds at the first consumer",
            "volume",
            "storageClassName",
        )
    for field, given in (
        ("serviceAccountName", hydration and hydration.service_account_name),
        ("tolerations", hydration and hydration.tolerations),
    ):
        if given:
            yield context.error(
                "no Job runs for volume.nodeLocal: engine pods have those of their InferenceClass; remove it", "hydration", field
            )


def stack_has_a_kubeconfig(spec: ServingStackSpec, context: RuleContext) -> Findings:
    """Require a kubeconfig: an identity alone has no address of a cluster."""
    if spec.secrets and all(secret.type != "Kubeconfig" for secret in spec.secrets):
        yield context.error("must include an entry of type Kubeconfig", "secrets")


RULES: Rules = {
    ModelCacheSpec: (source_block_is_present, image_is_mounted_alone, pods_can_fill_their_own_volume),
    HuggingFaceModel: (repository_id_is_valid, revision_is_valid, file_patterns_are_valid),
    OciModel: (image_reference_is_valid,),
    S3Model: (bucket_is_valid,),
    CacheVolume: (volume_serves_one_node,),
    ServingStackSpec: (stack_has_a_kubeconfig,),
}
