"""Rules for caches and serving stacks."""

from api_types.model_sources import (
    is_bucket,
    is_endpoint,
    is_file_pattern,
    is_prefix,
    is_region,
    is_repository_id,
    is_revision,
    read_image,
)
from api_types.resources.model_cache import (
    SOURCE_BLOCKS,
    CacheVolume,
    HuggingFaceModel,
    ModelCacheSpec,
    OciModel,
    S3Model,
)
from api_types.resources.serving_stack import ServingStackSpec
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_PATTERN_HINT = (
    "use letters, digits, spaces, ._-/+=@,~() and the wildcards * ? [ ] !, such "
    "as *.safetensors or original/*"
)


def source_block_is_present(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Require the block of the source."""
    block = SOURCE_BLOCKS[spec.source]
    if block not in spec.wire():
        yield context.error(f"required because source is {spec.source}", block)


def repository_id_is_valid(model: HuggingFaceModel, context: RuleContext) -> Findings:
    """Reject repository ids that the hub does not accept."""
    if not is_repository_id(model.repo):
        yield context.error(
            "not a repository id; write owner/name or name, of letters, digits, "
            "dot, underscore and hyphen",
            "repo",
        )


def revision_is_valid(model: HuggingFaceModel, context: RuleContext) -> Findings:
    """Reject a text that is neither branch, tag nor commit."""
    if model.revision and not is_revision(model.revision):
        yield context.error(
            "not a revision; use letters, digits, dot, underscore, slash and "
            "hyphen, without a leading hyphen",
            "revision",
        )


def file_patterns_are_valid(model: HuggingFaceModel, context: RuleContext) -> Findings:
    """Reject patterns that match no file, or that the Job would read differently."""
    for field, patterns in (
        ("allowPatterns", model.allow_patterns),
        ("ignorePatterns", model.ignore_patterns),
    ):
        for index, pattern in enumerate(patterns or ()):
            if not is_file_pattern(pattern):
                yield context.error(
                    f"{pattern!r} is not a pattern of files; {_PATTERN_HINT}",
                    f"{field}[{index}]",
                )


def image_reference_is_valid(model: OciModel, context: RuleContext) -> Findings:
    """Reject image references that no registry accepts.

    The reference becomes a path at the registry, and an argument of the program that
    unpacks it.
    """
    try:
        read_image(model.image)
    except ValueError as error:
        yield context.error(
            f"not an image reference: {error}; write registry/name:tag or registry/name@digest",
            "image",
        )


def bucket_is_valid(model: S3Model, context: RuleContext) -> Findings:
    """Reject an invalid location in a bucket.

    Each part becomes a part of a URL and an argument of the Job.
    """
    if not is_bucket(model.bucket):
        yield context.error(
            "not a bucket; use 3 to 63 lower-case letters, digits, dots and "
            "hyphens, without a hyphen at either end",
            "bucket",
        )
    if model.prefix is not None and not is_prefix(model.prefix):
        yield context.error(
            "not a prefix; write folders separated by single slashes, such as "
            "models/qwen, without a leading slash",
            "prefix",
        )
    if model.endpoint is not None and not is_endpoint(model.endpoint):
        yield context.error(
            "not an endpoint; write https://HOST or https://HOST:PORT (1 to "
            "65535), without a path",
            "endpoint",
        )
    if model.region is not None and not is_region(model.region):
        yield context.error(
            "not a region; use lower-case letters, digits and hyphens, such as eu-central-1",
            "region",
        )
    if model.endpoint is None and model.region is None:
        yield context.error(
            "required unless endpoint is set: it is the AWS region of the bucket",
            "region",
        )


def volume_serves_one_node(volume: CacheVolume, context: RuleContext) -> Findings:
    """Warn of a volume that pods on several nodes cannot mount.

    The second pod would wait forever, and no object shows the reason.
    """
    if volume.access_mode == "ReadWriteOnce" and not volume.node_local:
        text = (
            "only pods on one node can mount it at a time: use one replica per "
            "cluster, with all its pods on one node, or use ReadWriteMany"
        )
        yield context.warning(text, "accessMode")


def image_is_mounted_alone(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Reject fields that would silently have no effect if pods mount the image itself."""
    volume, oci = spec.volume, spec.oci
    if volume is None or not volume.image:
        return
    if spec.source != "OCI":
        yield context.error(
            f"only images can be mounted this way, and source is {spec.source}; "
            "remove it, or use source OCI",
            "volume",
            "image",
        )
    for field, given in (
        ("accessMode", volume.access_mode != "ReadWriteMany"),
        ("storageClassName", volume.storage_class_name),
    ):
        if given:
            yield context.error(
                "volume.image needs no volume, because nodes pull the image; "
                "remove one of them",
                "volume",
                field,
            )
    for field, unused in (
        ("plainHTTP", oci and oci.plain_http),
        ("scratch", oci and oci.scratch != "claim"),
    ):
        if unused:
            yield context.error(
                "no Job unpacks an image with volume.image, because nodes pull it "
                "with their own configuration; remove it",
                "oci",
                field,
            )
    if spec.hydration:
        yield context.error(
            "no Job runs for volume.image, because nodes pull the image with "
            "their own configuration; remove it",
            "hydration",
        )


def pods_can_fill_their_own_volume(
    spec: ModelCacheSpec, context: RuleContext
) -> Findings:
    """Reject fields without effect on node-local volumes, and require a storage class."""
    volume, hydration = spec.volume, spec.hydration
    if volume is None or not volume.node_local:
        return
    if volume.image:
        yield context.error(
            "an image needs no volume on the node; remove volume.nodeLocal or "
            "volume.image",
            "volume",
            "nodeLocal",
        )
    elif not volume.storage_class_name:
        yield context.error(
            "required with volume.nodeLocal: use a class for volumes on node "
            "disks, with volumeBindingMode WaitForFirstConsumer",
            "volume",
            "storageClassName",
        )
    for field, given in (
        ("serviceAccountName", hydration and hydration.service_account_name),
        ("tolerations", hydration and hydration.tolerations),
    ):
        if given:
            yield context.error(
                "no Job runs for volume.nodeLocal: engine pods use the settings "
                "of their InferenceClass; remove it",
                "hydration",
                field,
            )


def stack_has_a_kubeconfig(spec: ServingStackSpec, context: RuleContext) -> Findings:
    """Require a kubeconfig, because an identity alone has no address of a cluster."""
    if spec.secrets and all(secret.type != "Kubeconfig" for secret in spec.secrets):
        yield context.error("must include an entry of type Kubeconfig", "secrets")


RULES: Rules = {
    ModelCacheSpec: (
        source_block_is_present,
        image_is_mounted_alone,
        pods_can_fill_their_own_volume,
    ),
    HuggingFaceModel: (
        repository_id_is_valid,
        revision_is_valid,
        file_patterns_are_valid,
    ),
    OciModel: (image_reference_is_valid,),
    S3Model: (bucket_is_valid,),
    CacheVolume: (volume_serves_one_node,),
    ServingStackSpec: (stack_has_a_kubeconfig,),
}
