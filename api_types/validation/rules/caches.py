"""Rules for caches and serving stacks."""

from api_types.model_sources import is_file_pattern, is_repository_id, is_revision, read_image
from api_types.resources.model_cache import HuggingFaceModel, ModelCacheSpec, OciModel
from api_types.resources.serving_stack import ServingStackSpec
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_BLOCKS = {"HuggingFace": ("hugging_face", "huggingFace"), "OCI": ("oci", "oci")}

_PATTERN_HINT = "use letters, digits, spaces, ._-/+=@,~() and the wildcards * ? [ ] !, such as *.safetensors or original/*"


def source_block_is_present(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Require the block of the named source."""
    attribute, wire = _BLOCKS[spec.source]
    if getattr(spec, attribute) is None:
        yield context.error(f"required because source is {spec.source}", wire)


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


def stack_has_a_kubeconfig(spec: ServingStackSpec, context: RuleContext) -> Findings:
    """Require a kubeconfig: an identity alone has no address of a cluster."""
    if spec.secrets and all(secret.type != "Kubeconfig" for secret in spec.secrets):
        yield context.error("must include an entry of type Kubeconfig", "secrets")


RULES: Rules = {
    ModelCacheSpec: (source_block_is_present,),
    HuggingFaceModel: (repository_id_is_valid, revision_is_valid, file_patterns_are_valid),
    OciModel: (image_reference_is_valid,),
    ServingStackSpec: (stack_has_a_kubeconfig,),
}
