"""Every entry of the corpus of AWS runs through the error table and the fake.

The error table reads the answer itself. The fake gives the answer on request, and the
clients and handlers of the product read it. An entry with a scene names a state in
which the fake gives this answer by itself, so that it answers as AWS does.
"""

import re
from typing import Any

import pytest
from botocore import exceptions as aws_errors

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.eks.failures import (
    Purpose,
    failure,
    issue_error,
    says_exists,
    says_missing,
)
from activities.clouds.eks.handlers.base import issues_text, purpose_of
from api_types.errors import CloudObjectBroken, ModelplaneError
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.corpus import (
    EXISTS,
    GONE,
    CorpusEntry,
    entries_of,
    verdict_of,
)
from tests.activities.clouds.eks.scenes import GROUPS, SCENES, stage

ENTRIES = entries_of("aws")
CALLS = [each for each in ENTRIES if each.kind == "call"]
ISSUES = [each for each in ENTRIES if each.kind == "issue"]


def ids(entries: list[CorpusEntry]) -> list[str]:
    return [each.name for each in entries]


def as_error(entry: CorpusEntry) -> aws_errors.ClientError:
    """Return the exception of boto3 for the answer of an entry."""
    answer: Any = {
        "Error": {"Code": entry.answer["code"], "Message": entry.answer["message"]},
        "ResponseMetadata": {
            "HTTPStatusCode": entry.answer["status"],
            "HTTPHeaders": {},
        },
    }
    return aws_errors.ClientError(answer, "X")


def missing(entry: CorpusEntry, message: str) -> list[str]:
    """Return the words that a message for people lacks."""
    return [word for word in entry.says if word not in message]


@pytest.mark.parametrize("entry", CALLS, ids=ids(CALLS))
def test_the_error_table_gives_the_verdict(entry: CorpusEntry) -> None:
    error, purpose = as_error(entry), purpose_of(entry.operation)
    age = entry.more.get("role_seconds")
    found = failure(error, entry.service, entry.operation, purpose, role_seconds=age)
    verdict = verdict_of(found)
    if purpose is Purpose.CREATE and says_exists(error):
        verdict = EXISTS
    if purpose in (Purpose.READ, Purpose.DELETE) and says_missing(error):
        verdict = GONE
    assert (verdict, missing(entry, found.message)) == (entry.verdict, []), found


@pytest.mark.parametrize("entry", ISSUES, ids=ids(ISSUES))
def test_the_table_of_health_issues_gives_the_verdict(entry: CorpusEntry) -> None:
    issue = {at: str(entry.answer[at]) for at in ("code", "message")}
    found = issue_error(issue["code"], issue["message"]) or CloudObjectBroken
    text = issues_text([issue])
    assert (verdict_of(found("")), missing(entry, text)) == (entry.verdict, []), text


# Through the clients of the product


@pytest.fixture(scope="module")
def clients(served: FakeAws) -> AwsClients:
    return AwsClients(
        read_credential(served.credential.text), served.region, served.url
    )


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boto3 repeat calls without pauses."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("entry", CALLS, ids=ids(CALLS))
def test_the_clients_read_the_answer(
    aws: FakeAws, clients: AwsClients, entry: CorpusEntry
) -> None:
    api_name = clients.operations(entry.service)[entry.operation]
    answer = {at: entry.answer[at] for at in ("code", "message", "status")}
    fault = AwsFault(FaultKind.REFUSE, api_name, times=10, **answer)
    aws.fault(fault)
    if "role_seconds" in entry.more:
        made = role_of_age(aws, clients, entry.more["role_seconds"])
    given = least(clients, entry)
    if "role_seconds" in entry.more:
        given["roleArn"] = made
    purpose = purpose_of(entry.operation)
    try:
        found = clients.call(entry.service, entry.operation, given, purpose)
        verdict = EXISTS if purpose is Purpose.CREATE else GONE
        assert found is None
    except ModelplaneError as error:
        verdict = verdict_of(error)
    assert verdict == entry.verdict


def role_of_age(aws: FakeAws, clients: AwsClients, seconds: float) -> str:
    """Create a role, and return its ARN. The clients see it at an age in seconds."""
    made = aws.client("iam").create_role(RoleName="x", AssumeRolePolicyDocument="{}")
    born = made["Role"]["CreateDate"].timestamp()
    clients.seconds = lambda: born + seconds
    return str(made["Role"]["Arn"])


def least(clients: AwsClients, entry: CorpusEntry) -> dict[str, Any]:
    """Return made-up values for all required parameters of an operation."""
    model = clients._client(entry.service, entry.operation).meta.service_model
    name = clients.operations(entry.service)[entry.operation]
    shape = model.operation_model(name).input_shape
    given: dict[str, Any] = made_up(shape)
    return given


def made_up(shape: Any) -> Any:
    if shape.type_name == "structure":
        needed = shape.required_members
        return {name: made_up(shape.members[name]) for name in needed}
    if shape.type_name == "list":
        return [made_up(shape.member)]
    if shape.type_name == "map":
        return {}
    if shape.type_name in ("integer", "long"):
        return 1
    if shape.type_name == "boolean":
        return True
    return "x" * max(1, int(shape.metadata.get("min", 1)))


# The fake by itself

WITH_SCENE = [each for each in CALLS if each.fake]
_SAME = (
    (r"arn:[^ ,'\"]+", "ARN"),
    (r"\b(vpc|subnet|sg|igw|lt|a|eipalloc)-[0-9a-z]{8,}", r"\1-ID"),
    (r"\b[0-9a-f]{8}-[0-9a-f-]{27}", "ID"),
    (r"'[^']+'", "NAME"),
    (r"\b[a-z]{2}-[a-z]+-[0-9][a-z](, [a-z]{2}-[a-z]+-[0-9][a-z])*", "ZONES"),
    (r"\b[a-z][0-9a-z-]*\.[0-9]*(x?large|small|medium)", "TYPE"),
    (r"(?<=cluster )(prod|columbus)|(?<=name: )(prod|columbus)\.?", "NAME"),
    (r"(?<=with name )\w+( and cluster name )\w+", r"NAME\1NAME"),
    (r"(?<=role with name )\w+|(?<=Role with name )\w+", "NAME"),
    (r"User: .*|CIDR NAME", ""),
    (r"\s+", " "),
)


def same(text: str) -> str:
    """Return a text of AWS without the names and ids of one account."""
    for pattern, word in _SAME:
        text = re.sub(pattern, word, text)
    return text.strip()


@pytest.mark.parametrize("entry", WITH_SCENE, ids=ids(WITH_SCENE))
def test_the_fake_answers_as_aws_does(aws: FakeAws, entry: CorpusEntry) -> None:
    call = SCENES[entry.fake](stage(aws))
    try:
        with pytest.raises(aws_errors.ClientError) as raised:
            call()
    finally:
        aws.restore()
    answer: Any = raised.value.response
    found = {
        "code": answer["Error"]["Code"],
        "status": answer["ResponseMetadata"]["HTTPStatusCode"],
        "message": same(answer["Error"]["Message"]),
    }
    assert found == {**entry.answer, "message": same(entry.answer["message"])}


FAILING = [each for each in ISSUES if each.fake]


@pytest.mark.parametrize("entry", FAILING, ids=ids(FAILING))
def test_node_groups_of_the_fake_fail_as_those_of_aws(
    aws: FakeAws, entry: CorpusEntry
) -> None:
    cloud = stage(aws).ready_cluster()
    cloud.create_group(**GROUPS[entry.fake](cloud))
    cloud.until(cloud.group_state, "CREATE_FAILED")
    (issue,) = cloud.group()["health"]["issues"]
    wanted = entry.answer["code"], same(entry.answer["message"])
    assert (issue["code"], same(issue["message"])) == wanted


def test_every_scene_belongs_to_an_entry() -> None:
    named = {each.fake for each in ENTRIES if each.fake}
    assert named == {*SCENES, *GROUPS}
