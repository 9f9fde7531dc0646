"""The fuzzed readers of input, each through the function or command used in production."""

import asyncio
import contextlib
import importlib
import io
import json
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from activities.clients.hubs.huggingface import HuggingFaceHub
from activities.clients.hubs.oci import OciRegistry
from activities.clients.kubernetes.api_failures import failure
from activities.clients.kubernetes.kubeconfig import parse_kubeconfig
from activities.clients.outward.requests import HttpResponse, OutwardClient
from activities.render.cache.artifact import Artifact
from activities.render.inputs.facts_file import InvalidFactsFile, read_facts
from api_types import labels, messages
from api_types.base import Message
from api_types.clock import utc_now
from api_types.environment import CONFIG_VARIABLE
from api_types.errors import CredentialsInvalid, ModelplaneError
from api_types.messages import signals
from api_types.messages.delivery import Receiver, Signal
from api_types.model_sources import is_revision
from api_types.resources.secrets import DataManifest
from api_types.sections.clusters import KubeconfigSettings
from api_types.text.printable import escaped
from api_types.text.quantity import parse_quantity
from api_types.validation.manifests import InvalidManifest, Problem, admit_all, parse
from client.failures import ExitCode, report
from client.main import run as run_command
from client.manifests.policy_file import read_policy_file
from client.manifests.secrets import store_secrets
from client.manifests.yaml_file import read_yaml
from fleet_client.checks import CHECKS
from fleet_client.configuration import load_settings
from fleet_client.errors import CommandFailed
from fleet_client.refs.selectors import parse_selector
from fleet_client.refs.targets import kinds_and_names, objects_named
from fleet_client.temporal.converter import DATA_CONVERTER
from front.access.files import BadAccessFile, load
from front.access.signing import CallersFile
from front.applying.annotation import revealed
from front.scaling import events, scaler_messages
from front.scaling.external_scaler import read_trigger
from front.scaling.numbers import read_numbers
from front.scaling.webhook import read_wanted
from front.serving import bodies
from front.serving.errors import RejectedRequest
from front.serving.requests import resource_of
from front.serving.writes.managers import (
    Manager,
    after_apply,
    after_update,
    configuration,
    with_owners,
)
from scheduler import parse_version
from scheduler.cel import SelectorError, compile_selector
from scheduler.model.devices import DeviceEntry
from tests.fuzz.cases import Shown, Target

# The text that is planted in place of a secret. It looks as random as a secret, so it
# is hidden in place of a name too.
SECRET = "b7e6c1d09f3a4c5e8d7b6a5f4e3d2c1b"  # noqa: S105
_HANDLED = {
    ExitCode.DONE,
    ExitCode.FAILED,
    ExitCode.REFUSED,
    ExitCode.NOT_FOUND,
    ExitCode.CONFLICT,
}

# Commands


def _command(*words: str) -> Callable[[str], Shown]:
    def run(text: str) -> Shown:
        return _run([*words, "-f", str(_file(text))])

    return run


def _run(words: list[str]) -> Shown:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(words)
    if code not in _HANDLED:
        raise AssertionError(f"exit code {code}: {err.getvalue()[:2000]}")
    return Shown(err.getvalue(), out.getvalue())


def _file(text: str) -> Path:
    file = Path("input.yaml").absolute()
    file.write_bytes(text.encode(errors="surrogatepass"))
    return file


# Credentials and settings


def _kubeconfig(text: str) -> Shown:
    said = []
    for settings in (
        KubeconfigSettings(),
        KubeconfigSettings(allow_exec=True, allow_loopback=True),
    ):
        try:
            parse_kubeconfig(text, settings, "cluster x")
        except CredentialsInvalid as error:
            said.append(str(error))
    return Shown("\n".join(said))


def _settings(text: str) -> Shown:
    os.environ[CONFIG_VARIABLE] = str(_file(text))
    try:
        load_settings()
    except CommandFailed as failed:
        return Shown(report(failed))
    finally:
        del os.environ[CONFIG_VARIABLE]
    return Shown()


def _policy(text: str) -> Shown:
    said = []
    try:
        read_policy_file(_file(text))
    except CommandFailed as failed:
        said.append(report(failed))
    try:
        read_facts(read_yaml(_file(text), "facts"), "input.yaml")
    except InvalidFactsFile as error:
        said.append(
            report(
                CommandFailed(
                    "invalid facts",
                    details=error.problems,
                    next_step="fix these fields",
                )
            )
        )
    except CommandFailed as failed:
        said.append(report(failed))
    return Shown(max(said, key=len, default=""))


def _secrets(text: str) -> Shown:
    shown = _stored(text)
    # Names are shown, so a secret in a name is shown too.
    return shown if _is_only_a_value(text) else Shown()


def _stored(text: str) -> Shown:
    try:
        admitted = [
            one.manifest for one in admit_all(parse(text, "input.yaml"), CHECKS)
        ]
    except InvalidManifest as error:
        return Shown(str(error))
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            asyncio.run(
                store_secrets(
                    [one for one in admitted if isinstance(one, DataManifest)],
                    load_settings(),
                )
            )
    except CommandFailed as failed:
        return Shown(report(failed), out.getvalue())
    return Shown(output=out.getvalue())


def _is_only_a_value(text: str) -> bool:
    """Return whether the secret appears only in values."""
    try:
        documents = parse(text, "")
    except InvalidManifest:
        return True
    return not any(
        SECRET in str({**one, "data": 0, "stringData": 0, "binaryData": 0})
        or _in_keys(one)
        for one in documents
    )


def _in_keys(node: Any) -> bool:
    if isinstance(node, Mapping):
        return any(SECRET in str(key) or _in_keys(item) for key, item in node.items())
    return isinstance(node, list) and any(map(_in_keys, node))


# CEL and other expressions

_DEVICES = [
    DeviceEntry("gpu", "DRA", "gpu.nvidia.com", "gpu.nvidia.com", 8),
    DeviceEntry(
        "gpu",
        "DRA",
        "gpu.nvidia.com",
        "gpu.nvidia.com",
        8,
        attributes=(
            ("bf16", "bool", True),
            ("driverVersion", "version", "570.1.0"),
            ("pcie", "int", 5),
            ("productName", "string", "H200 " * 12),
        ),
        capacity=(("cores", "132"), ("memory", "141Gi")),
    ),
]


def _cel(text: str) -> Shown:
    try:
        selector = compile_selector(text)
    except SelectorError as error:
        # Admission shows it, and escapes it.
        return Shown(str(Problem("ModelDeployment a/b", "spec", str(error))))
    verdicts = [selector.match(device) for device in _DEVICES]
    return Shown(output="\n".join(ascii(verdict.error) for verdict in verdicts))


def _words(text: str) -> Shown:
    said = []
    for read in (
        _matches,
        lambda words: kinds_and_names(words.split()),
        lambda words: objects_named(words.split(), None),
    ):
        try:
            read(text)
        except CommandFailed as failed:
            said.append(report(failed))
    for number in (parse_quantity, parse_version):
        try:
            number(text)
        except ValueError as error:
            said.append(report(CommandFailed(str(error), next_step="")))
    return Shown(max(said, key=len, default=""))


def _matches(text: str) -> None:
    select = parse_selector(text)
    select({})
    select({"app": "chat", "region": "eu"})


# Messages


def _messages(text: str) -> Shown:
    payload = DATA_CONVERTER.payload_converter.to_payloads([None])[0]
    payload.metadata["encoding"] = b"json/plain"
    payload.data = text.encode(errors="surrogatepass")
    try:
        found = DATA_CONVERTER.payload_converter.from_payloads([payload], [Any])[0]
    except ValueError:
        return Shown()
    name, tree = (
        (found.get("name"), found.get("payload"))
        if isinstance(found, dict)
        else (None, found)
    )
    read = _READERS.get(name) if isinstance(name, str) else None
    for one in [read] if read else _READERS.values():
        try:
            message = one(tree)
        except ValidationError:
            continue
        if message is not None:
            type(message).model_validate(json.loads(json.dumps(message.wire())))
    return Shown()


def _readers() -> dict[str, Callable[[Any], Message | None]]:
    """Return every message and every signal by name."""
    found: dict[str, Callable[[Any], Message | None]] = {}
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        for model in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(model, type)
                and issubclass(model, Message)
                and model is not Message
            ):
                found[model.__name__] = model.model_validate
    for receiver in vars(signals).values():
        if isinstance(receiver, type) and issubclass(receiver, Receiver):
            found |= {
                one.name: one.parse
                for one in vars(receiver).values()
                if isinstance(one, Signal)
            }
    return found


_READERS = _readers()

# Responses of other servers


def _answers(text: str) -> Shown:
    """Read `{hub, origin, revision, credential, answers: [{status, headers, body}]}`.

    The answers are the responses of a hub or an API server, in order.
    """
    answers, fields = _answers_and_fields(text)
    # An API server does not know the credential of a hub.
    said = [
        str(
            failure(
                one.status,
                one.body.replace(SECRET.encode(), b""),
                one.headers,
                "x",
                "apply v1/Pod/a/b",
            )
        )
        for one in answers
    ]
    hub = (
        OciRegistry(allow_plain_http=True)
        if fields["hub"] == "oci"
        else HuggingFaceHub()
    )
    client = OutwardClient.__new__(OutwardClient)

    async def get(*_: Any, **__: Any) -> HttpResponse:
        return answers.pop(0) if answers else HttpResponse(404, {}, b"")

    client.get = get  # type: ignore[method-assign]
    hub._client = client
    revision = fields["revision"] if is_revision(fields["revision"]) else ""
    artifact = Artifact(
        source=fields["hub"], origin=fields["origin"], revision=revision, size_gib=1
    )
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            asyncio.run(hub.resolve(artifact, fields["credential"]))
    except ModelplaneError as error:
        said.append(str(error))
    # Conditions and events contain the errors, which are escaped when they are shown.
    return Shown(escaped(max(said, key=len, default="")))


def _answers_and_fields(text: str) -> tuple[list[HttpResponse], dict[str, str]]:
    try:
        case = json.loads(text)
        answers = [_answer(one) for one in case["answers"]]
        fields = {key: str(case.get(key, "")) for key in ("hub", "credential")}
        # Both are shown.
        for key in ("origin", "revision"):
            fields[key] = str(case.get(key, "")).replace(SECRET, "")[:200]
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        OverflowError,
    ):
        # The text is a response itself, and its server does not know the credential.
        body = text.replace(SECRET, "").encode(errors="surrogatepass")
        fields = {"hub": "", "origin": "a/b", "revision": "", "credential": SECRET}
        return [HttpResponse(200, {}, body)], fields
    return answers, fields


def _answer(tree: Any) -> HttpResponse:
    body = tree.get("body", "")
    content = body if isinstance(body, str) else json.dumps(body)
    headers = {
        str(name): str(value) for name, value in dict(tree.get("headers") or {}).items()
    }
    return HttpResponse(
        int(tree.get("status", 200)), headers, content.encode(errors="surrogatepass")
    )


# Requests of autoscalers


def _scaling(text: str) -> Shown:
    """Read a body as each type of autoscaler request, and as the file of their keys."""
    body, said = text.encode(errors="surrogatepass"), []
    resource = resource_of(
        "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/chat"
    )
    assert resource is not None
    for read in (
        lambda: read_wanted(resource, bodies.parse_object(body)),
        lambda: read_numbers(
            bodies.parse_object(body), "uid", "chat", utc_now(), timedelta(seconds=120)
        ),
        lambda: _event(events.read_event({"Content-Type": events.STRUCTURED}, body)),
        lambda: _event(
            events.read_event(
                {
                    f"ce-{name}": text[:4096]
                    for name in ("specversion", "id", "source", "type", "subject")
                },
                body,
            )
        ),
        lambda: _trigger(bodies.parse_object(body)),
    ):
        try:
            read()
        except RejectedRequest as refusal:
            said.append(json.dumps(refusal.status))
    try:
        load(_file(text), CallersFile)
    except BadAccessFile as error:
        said.append(str(error))
    return Shown(max(said, key=len, default=""))


def _event(event: events.CloudEvent) -> None:
    known = replace(
        event,
        type=event.type
        if event.type in events.RECORDED
        else "keda.scaledobject.failed.v1",
    )
    events.report_of(known, "ann").wire()
    events.deployment_of(known)


def _trigger(tree: Mapping[str, Any]) -> None:
    metadata = {
        key: str(value).encode(errors="replace").decode()
        for key, value in tree.items()
        if isinstance(key, str)
    }
    with contextlib.suppress(
        UnicodeEncodeError
    ):  # protobuf cannot represent halves of surrogate pairs
        read_trigger(
            scaler_messages.ScaledObjectRef(
                name="chat", namespace="a", scalerMetadata=metadata
            )
        )


# Server-side apply


def _applying(text: str) -> Shown:
    """Read a body as an applied configuration and as another write.

    The object also has the body in its annotations. The owners of all fields are
    computed.
    """
    resource = resource_of(
        "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/chat"
    )
    assert resource is not None
    kept = {labels.MANAGED_FIELDS: text, labels.LAST_APPLIED: text}
    live = revealed(
        {"metadata": {"name": "chat", "annotations": kept}, "spec": {"replicas": 1}}
    )
    try:
        body = bodies.parse_object(text.encode(errors="surrogatepass"))
        document = (
            {**body, "metadata": {**body.get("metadata", {}), "name": "chat"}}
            if isinstance(body.get("metadata", {}), dict)
            else live
        )
        # Every write has these fields.
        document |= {
            "apiVersion": resource.info.api_version,
            "kind": resource.info.kind,
        }
        owners = after_update(
            resource.info,
            live,
            document,
            {**live, "spec": {"replicas": 2}},
            Manager("ann"),
        )
        before = revealed(with_owners({**live, "kind": resource.info.kind}, owners))
        config = configuration(
            resource.info,
            {**document, "metadata": {**document["metadata"], "managedFields": None}},
            Manager("kubectl"),
        )
        _, owners = after_apply(
            resource, config, before, Manager("kubectl", force=True), lambda tree: tree
        )
        with_owners({**live, "kind": resource.info.kind}, owners)
        after_apply(resource, config, before, Manager("kubectl"), lambda tree: tree)
    except RejectedRequest as refusal:
        return Shown(json.dumps(refusal.status))
    return Shown("")


TARGETS = {
    target.name: target
    for target in (
        Target("validate", _command("validate")),
        Target("render", _command("render")),
        Target("plan", _command("plan", "--offline", "-o", "wide")),
        Target("kubeconfig", _kubeconfig, SECRET),
        # The names of keys are shown, and a change may put any text there.
        Target("settings", _settings),
        Target("policy", _policy),
        Target("secrets", _secrets, SECRET),
        Target("cel", _cel),
        Target("words", _words),
        Target("messages", _messages),
        Target("answers", _answers, SECRET),
        Target("scaling", _scaling),
        Target("applying", _applying),
    )
}
