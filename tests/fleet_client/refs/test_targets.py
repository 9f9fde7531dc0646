import pytest

from api_types.resources.kinds import BY_KIND, SERVED
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target, kinds_and_names, objects_named

WORDS = [
    ("a short name", ["md"], [("ModelDeployment", None)]),
    ("a plural", ["inferenceclusters"], [("InferenceCluster", None)]),
    ("a kind as it is written", ["ModelDeployment"], [("ModelDeployment", None)]),
    ("two kinds", ["ic,icl"], [("InferenceCluster", None), ("InferenceClass", None)]),
    (
        "a kind and names",
        ["md", "a", "b"],
        [("ModelDeployment", "a"), ("ModelDeployment", "b")],
    ),
    (
        "objects of two kinds",
        ["md/a", "ic/b"],
        [("ModelDeployment", "a"), ("InferenceCluster", "b")],
    ),
    ("all", ["all"], [(kind.kind, None) for kind in SERVED]),
    (
        "a kind that another one shows",
        ["ss,ServingStack"],
        [("ServingStack", None), ("ServingStack", None)],
    ),
]


@pytest.mark.parametrize(
    ("story", "words", "want"), WORDS, ids=[row[0] for row in WORDS]
)
def test_objects_are_named_as_with_kubectl(
    story: str, words: list[str], want: list[tuple[str, str | None]]
) -> None:
    assert [(kind.kind, name) for kind, name in kinds_and_names(words)] == want, story


REFUSED = [
    ("nothing", [], "name a kind or an object"),
    ("an unknown kind", ["modeldeploymnt"], "did you mean ModelDeployment"),
    (
        "several kinds with a name",
        ["md,ic", "a"],
        "cannot share names: ModelDeployment, InferenceCluster",
    ),
    ("a slash without a name", ["md/"], "does not name an object"),
    ("an empty name", ["md", ""], "a name of ModelDeployment is empty"),
    (
        "a blank name among others",
        ["md", "a", " "],
        "a name of ModelDeployment is empty",
    ),
    ("a slash before a blank", ["md/ "], "does not name an object"),
    ("an object and an empty word", ["md/a", ""], "does not name an object"),
    ("two slashes", ["md/a/b"], "does not name an object"),
    ("slashed and plain words mixed", ["md/a", "b"], "does not name an object"),
]


@pytest.mark.parametrize(
    ("story", "words", "say"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_an_invalid_target_is_rejected_with_a_next_step(
    story: str, words: list[str], say: str
) -> None:
    with pytest.raises(Refused) as refused:
        kinds_and_names(words)
    assert say in refused.value.message, story
    assert refused.value.next_step


def test_names_of_several_kinds_are_shown_as_they_can_be_typed() -> None:
    with pytest.raises(Refused) as refused:
        kinds_and_names(["md,ic", "a", "b"])
    assert refused.value.next_step == "write the kind of each name: `md/a md/b`"


def test_a_command_on_objects_wants_names() -> None:
    with pytest.raises(Refused, match="which ModelDeployment"):
        objects_named(["md"], None)


def test_a_namespace_counts_only_where_the_kind_has_one() -> None:
    cluster, deployment = (
        Target.of(BY_KIND["InferenceCluster"], "ml", "oslo"),
        Target.of(BY_KIND["ModelDeployment"], None, "qwen"),
    )
    assert (cluster.workflow_id, deployment.workflow_id) == (
        "inferencecluster/oslo",
        "modeldeployment/default/qwen",
    )
    assert (cluster.title, deployment.title) == (
        "InferenceCluster oslo",
        "ModelDeployment default/qwen",
    )


def test_a_stack_is_in_one_namespace_and_its_workflow_is_that_of_its_cluster() -> None:
    stack = Target.of(BY_KIND["ServingStack"], "ml", "oslo")
    assert (stack.namespace, stack.command, stack.workflow_id) == (
        "modelplane-system",
        "ss/oslo",
        "inferencecluster/oslo",
    )
    assert stack.owner == Target.of(BY_KIND["InferenceCluster"], None, "oslo")


def test_an_object_is_named_so_that_the_arguments_can_be_typed_again() -> None:
    assert (
        Target.of(BY_KIND["ModelDeployment"], "ml", "qwen").command == "md/qwen -n ml"
    )
    assert Target.of(BY_KIND["ModelDeployment"], "default", "qwen").command == "md/qwen"
