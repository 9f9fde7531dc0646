"""Every entry of the corpus of Google Cloud.

Each runs through the error table, and through the handlers if they make the call. The
entries with a scene are answers that the fake gives on its own, in the same words.
"""

import re
from typing import Any

import pytest
from google.api_core import exceptions as api
from google.rpc.error_details_pb2 import ErrorInfo

from activities.clouds.gke.failures import (
    GcpErrorInfo,
    condition_failure,
    failure,
    failure_of,
)
from activities.clouds.lifecycle.ensure import ensure
from api_types.errors import ModelplaneError
from fakes.gcp.calls.faults import OperationFails, Refuse, TerminalState
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.corpus import CorpusEntry, entries_of, verdict_of
from tests.activities.clouds.gke.cloud import PACE, Cloud, a_cloud, run
from tests.activities.clouds.gke.corpus_scenes import SCENES

EVERY = entries_of("gcp")
ANSWERS = [each for each in EVERY if each.kind != "behaviour"]
# The calls of handlers, with the keys of their objects.
OBJECTS = {
    "container create_cluster": "cluster",
    "container create_node_pool": "pool/gpu",
    "compute.networks insert": "net/vpc",
    "compute.subnetworks insert": "net/subnet",
    "iam create_service_account": "iam/sa",
    "resourcemanager.projects set_iam_policy": "iam/binding",
    "serviceusage enable_service": "api/file",
}
OPERATIONS = {
    "operation create_cluster": "container.create_cluster",
    "operation create_node_pool": "container.create_node_pool",
    "compute operation delete": "compute.networks.delete",
}
DELETIONS = [each for each in ANSWERS if each.request == "container delete_node_pool"]
CALLS = [each for each in ANSWERS if each.request in OBJECTS]
ENDINGS = [each for each in ANSWERS if each.request in OPERATIONS]


def ids(entries: list[CorpusEntry]) -> list[str]:
    return [each.name for each in entries]


def error_of(entry: CorpusEntry) -> ModelplaneError:
    """Return the error of the table for an answer."""
    answer, deleting = entry.answer, "delete" in entry.operation
    if entry.kind == "issue":
        if "condition" in answer:
            return condition_failure(answer["condition"], answer["message"], "it")
        signal = GcpErrorInfo(answer.get("code", ""), answer["message"])
        return failure(signal, "do it", deleting=deleting)
    status, text, reason = answer["status"], answer["message"], answer.get("reason", "")
    if entry.service.startswith("compute."):
        error: Any = api.from_http_status(status, text, errors=[{"reason": reason}])
    else:
        kind: Any = getattr(api, _GRPC[answer["code"]])
        info = ErrorInfo(reason=reason) if reason else None
        error = kind(text, details=[info] if info else [], error_info=info)
    return failure_of(error, "do it", deleting=deleting)


_GRPC = {
    "ABORTED": "Aborted",
    "FAILED_PRECONDITION": "FailedPrecondition",
    "INTERNAL": "InternalServerError",
    "INVALID_ARGUMENT": "InvalidArgument",
    "NOT_FOUND": "NotFound",
    "PERMISSION_DENIED": "PermissionDenied",
    "RESOURCE_EXHAUSTED": "ResourceExhausted",
}


def missing(entry: CorpusEntry, message: str) -> list[str]:
    return [word for word in entry.says if word not in message]


def attempted(cloud: Cloud, key: str) -> ModelplaneError:
    """Return the error of one attempt of an activity on an object."""
    each = cloud.object(key)
    with pytest.raises(ModelplaneError) as caught:
        run(ensure(cloud.handler(each), cloud.wanted(each), PACE, cloud.reports.append))
    return caught.value


def made_before(cloud: Cloud, key: str) -> None:
    """Create the objects that come before this one."""
    for each in cloud.objects:
        if each.key == key:
            return
        run(cloud.ensure(each))


@pytest.mark.parametrize("entry", ANSWERS, ids=ids(ANSWERS))
def test_an_answer_has_the_expected_verdict(entry: CorpusEntry) -> None:
    error = error_of(entry)
    assert (verdict_of(error), missing(entry, error.message)) == (entry.verdict, [])


@pytest.mark.parametrize("entry", CALLS, ids=ids(CALLS))
def test_a_refused_call_of_a_handler_has_the_expected_verdict(
    google: FakeGoogle, entry: CorpusEntry
) -> None:
    cloud, key = a_cloud(google, a_pool()), OBJECTS[entry.request]
    made_before(cloud, key)
    google.fault(refusal_of(entry, times=100))
    error = attempted(cloud, key)
    assert (verdict_of(error), missing(entry, error.message)) == (entry.verdict, [])


@pytest.mark.parametrize("entry", DELETIONS, ids=ids(DELETIONS))
def test_a_deletion_that_is_refused_for_now_waits_and_reports_the_reason(
    google: FakeGoogle, entry: CorpusEntry
) -> None:
    cloud = a_cloud(google, a_pool())
    made_before(cloud, "")
    google.fault(refusal_of(entry, times=1))
    run(cloud.delete(cloud.object("pool/gpu")))
    assert entry.verdict == "busy"
    assert any(entry.answer["message"] in each for each in cloud.reports)


def refusal_of(entry: CorpusEntry, times: int) -> Refuse:
    reason = entry.answer.get("reason", "")
    return Refuse(
        call=entry.request.replace(" ", "."),
        times=times,
        code=entry.answer["code"],
        message=entry.answer["message"],
        reason=reason,
        http_reason=reason,
    )


@pytest.mark.parametrize("entry", ENDINGS, ids=ids(ENDINGS))
def test_a_failed_operation_of_a_handler_has_the_expected_verdict(
    google: FakeGoogle, entry: CorpusEntry
) -> None:
    """A cluster or pool in state ERROR reports its cause, and is created again."""
    cloud = a_cloud(google, a_pool())
    call, text = OPERATIONS[entry.request], entry.answer["message"]
    deleting = "delete" in entry.operation
    key = {"cluster": "cluster", "node_pool": "pool/gpu"}.get(
        call.partition("create_")[2], "net/vpc"
    )
    made_before(cloud, "" if deleting else key)
    if deleting:
        run(cloud.delete(cloud.object("pool/gpu")))
        run(cloud.delete(cloud.object("cluster")))
        run(cloud.delete(cloud.object("net/subnet")))
        google.fault(OperationFails(call=call, message=text))
    else:
        condition = entry.answer.get("condition", "UNKNOWN")
        google.fault(
            TerminalState(call=call, times=9, condition=condition, message=text)
        )
    each = cloud.object(key)
    work = cloud.delete(each, attempts=1) if deleting else cloud.ensure(each)
    with pytest.raises(ModelplaneError) as caught:
        run(work)
    error = caught.value
    # A transient cause of a broken object needs a person once a rebuild has not helped.
    expected = "broken" if entry.verdict == "busy" else entry.verdict
    assert (verdict_of(error), missing(entry, error.message)) == (expected, [])


ON_ITS_OWN = [each for each in EVERY if each.fake]


def skeleton(text: str) -> str:
    """Return a text without names, numbers, addresses and the end of its sentence."""
    # The library of Compute Engine adds the request.
    text = re.sub(r"https://\S+", "URL", text).removeprefix("POST URL ")
    text = re.sub(r"\"[^\"]*\"|'[^']*'|\([^)]*\)", "X", text)
    text = re.sub(r"\S*\d\S*", "N", re.sub(r"\S+@\S+", "X", text))
    return " ".join(text.split())[:70].rstrip(".")


@pytest.mark.parametrize("entry", ON_ITS_OWN, ids=ids(ON_ITS_OWN))
def test_the_fake_behaves_as_the_source_says(
    google: FakeGoogle, entry: CorpusEntry
) -> None:
    found = SCENES[entry.fake](a_cloud(google, a_pool()))
    if entry.kind == "behaviour":
        assert found == entry.verdict
    else:
        assert skeleton(found) == skeleton(entry.answer["message"])


def test_every_scene_belongs_to_an_entry() -> None:
    assert set(SCENES) == {each.fake for each in EVERY if each.fake}
