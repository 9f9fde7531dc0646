"""The front accepts everything in docs/how-to/autoscaling.md and examples/keda."""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from front.access import signing
from front.scaling import scaler_messages as messages
from front.scaling.events import RECORDED
from front.scaling.external_scaler import read_trigger
from front.scaling.numbers import NAMES
from tests.front.scaling.scaling_under_test import KEY, NOW, path_of, signature

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "how-to" / "autoscaling.md").read_text()


def documents(kind: str) -> Iterator[Any]:
    for file in sorted((ROOT / "examples" / "keda").glob("*.yaml")):
        yield from (
            each
            for each in yaml.safe_load_all(file.read_text())
            if each["kind"] == kind
        )


def triggers(*kinds: str) -> list[tuple[Any, Any]]:
    """Yield each trigger of a type with its ScaledObject."""
    return [
        (whole, each)
        for whole in documents("ScaledObject")
        for each in whole["spec"]["triggers"]
        if each["type"] in kinds
    ]


def test_each_scaled_object_scales_the_deployment_of_its_name() -> None:
    for whole in documents("ScaledObject"):
        target = {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "ModelDeployment",
            "name": whole["metadata"]["name"],
        }
        assert whole["spec"]["scaleTargetRef"] == target


def test_triggers_of_the_external_scaler_are_valid() -> None:
    found = triggers("external", "external-push")
    assert found
    for whole, trigger in found:
        metadata = whole["metadata"]
        reference = messages.ScaledObjectRef(
            name=metadata["name"],
            namespace=metadata["namespace"],
            scalerMetadata={
                key: str(value) for key, value in trigger["metadata"].items()
            },
        )
        read = read_trigger(reference)
        assert (read.resource.namespace, read.resource.name) == (
            metadata["namespace"],
            whole["spec"]["scaleTargetRef"]["name"],
        )
        assert set(trigger["metadata"]) <= {
            "scalerAddress",
            "deployment",
            "metric",
            "targetValue",
            "activationValue",
        }


def test_triggers_of_the_metrics_api_use_an_existing_path_and_field() -> None:
    found = triggers("metrics-api")
    assert found
    for whole, trigger in found:
        name, namespace = whole["metadata"]["name"], whole["metadata"]["namespace"]
        assert urlsplit(trigger["metadata"]["url"]).path == path_of(
            name, "metrics", namespace
        )
        assert trigger["metadata"]["valueLocation"] in NAMES


def test_subscribed_events_are_recorded() -> None:
    (source,) = documents("CloudEventSource")
    assert set(source["spec"]["eventSubscription"]["includedEventTypes"]) == set(
        RECORDED
    )
    assert urlsplit(source["spec"]["destination"]["http"]["uri"]).path == "/v1/events"


async def test_the_documented_commands_sign_valid_requests() -> None:
    (block,) = (
        text
        for text in re.findall(
            r"^```sh\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL
        )
        if "signature=" in text
    )
    commands = (
        block.partition("curl")[0] + 'printf "%s\\n" "$path" "$body" "$id" "$signature"'
    )
    fixed = commands.replace("$(date +%s)", str(int(NOW.timestamp())))
    environment = {"PATH": os.environ["PATH"], "KEY": KEY}
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", fixed, stdout=asyncio.subprocess.PIPE, env=environment
    )
    told, _ = await process.communicate()
    path, body, request_id, signed = told.decode().splitlines()
    assert (
        signature(path, body.encode(), NOW, request_id=request_id)[signing.SIGNATURE]
        == signed
    )
    assert all(f"{name}: " in block for name in signing.HEADERS)


@pytest.mark.parametrize(
    "name",
    [
        *signing.HEADERS,
        *NAMES,
        *(name for name in ("deployment", "metric", "targetValue", "activationValue")),
    ],
)
def test_each_header_and_field_is_documented(name: str) -> None:
    assert f"| `{name}` |" in DOCUMENT


def test_keda_has_a_user_for_each_namespace_and_a_rule_for_no_other() -> None:
    """Everybody who may read the Secrets of the namespace can act as this user."""
    rules = [
        yaml.safe_load(text) for text in re.findall(r"`(\{users: [^`]*\})`", DOCUMENT)
    ]
    assert rules
    for rule in rules:
        assert [f"keda-{namespace}" for namespace in rule["namespaces"]] == rule[
            "users"
        ]
        assert len(rule["users"]) == 1
    (rule,) = rules
    assert {
        each["metadata"]["namespace"] for each in documents("TriggerAuthentication")
    } == set(rule["namespaces"])
    assert f"-subj /CN={rule['users'][0]} " in DOCUMENT
