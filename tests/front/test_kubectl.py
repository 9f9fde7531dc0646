"""kubectl with the front, real Temporal, workers and TLS; clusters are simulated.

test_kubectl_session.py shows the whole life of a deployment.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from testbed.cluster.pki import Authority
from tests.front.front_under_test import (
    BASE,
    CERTIFIED,
    DEPLOYMENTS,
    NOWHERE,
    ROOT,
    FrontUnderTest,
    a_front_program,
)
from tests.front.token_issuer import an_issuer, rsa_key
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

NAMESPACE = "team-a"


def document(name: str, **more: Any) -> str:
    """A ModelDeployment as JSON, which kubectl accepts like YAML."""
    return json.dumps(a_deployment(name, NAMESPACE, **more))


async def test_kinds_can_be_discovered_and_explained(front: FrontUnderTest) -> None:
    listed = await front.kubectl("api-resources", "--api-group", "modelplane.ai")
    rows = {line.split()[0]: line.split()[1:] for line in listed.splitlines()[1:]}
    assert rows["modeldeployments"] == [
        "md",
        "modelplane.ai/v1alpha1",
        "true",
        "ModelDeployment",
    ]
    assert rows["inferenceclusters"] == [
        "ic",
        "modelplane.ai/v1alpha1",
        "false",
        "InferenceCluster",
    ]
    explained = await front.kubectl("explain", "modeldeployment.spec.replicas")
    assert "Number of ModelReplicas" in explained
    assert "v1.32" in await front.kubectl("version")


async def test_all_errors_are_reported_at_once_with_their_fields(
    front: FrontUnderTest,
) -> None:
    wrong = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "bad", "namespace": NAMESPACE},
    }
    for command in (("apply", "-f", "-"), ("create", "--dry-run=server", "-f", "-")):
        told = await front.kubectl(
            *command,
            input=json.dumps({**wrong, "spec": {"replicas": -1, "template": {}}}),
            fails=True,
        )
        assert 'The ModelDeployment "bad" is invalid' in told
        assert "* spec.replicas: must be between 0 and 1000, got -1" in told
        assert "* spec.template.spec: required field is missing" in told
    assert "NotFound" in await front.kubectl(
        "-n", NAMESPACE, "get", "md", "bad", fails=True
    )
    replica = {**wrong, "kind": "ModelReplica", "spec": {}}
    assert "MethodNotAllowed" in await front.kubectl(
        "-n",
        NAMESPACE,
        "create",
        "--validate=false",
        "-f",
        "-",
        input=json.dumps(replica),
        fails=True,
    )


async def test_a_dry_run_changes_nothing(front: FrontUnderTest) -> None:
    assert "created (server dry run)" in await front.kubectl(
        "create", "--dry-run=server", "-f", "-", input=document("dry")
    )
    assert await front.plane.describe("ModelDeployment", "dry", NAMESPACE) == {}
    await front.kubectl(
        "create", "-f", "-", input=document("dry", clusterSelector=NOWHERE)
    )
    # Otherwise the conditions of the first pass could appear between the two requests
    # of `diff`.
    await front.kubectl(
        "-n",
        NAMESPACE,
        "wait",
        "md/dry",
        "--for=condition=FullyScheduled=False",
        "--timeout=240s",
    )
    same = document("dry", clusterSelector=NOWHERE)
    assert await front.kubectl("-n", NAMESPACE, "diff", "-f", "-", input=same) == ""
    await front.kubectl(
        "-n", NAMESPACE, "scale", "md/dry", "--replicas=5", "--dry-run=server"
    )
    await front.kubectl("-n", NAMESPACE, "label", "md/dry", "x=y", "--dry-run=server")
    await front.kubectl("-n", NAMESPACE, "delete", "md/dry", "--dry-run=server")
    kept = await front.plane.describe("ModelDeployment", "dry", NAMESPACE)
    assert (
        kept["spec"]["replicas"],
        kept["metadata"].get("labels"),
        kept["metadata"].get("deletionTimestamp"),
    ) == (1, None, None)
    await front.kubectl("-n", NAMESPACE, "delete", "md/dry", "--timeout=240s")


async def test_the_access_file_grants_rights_to_users(
    front: FrontUnderTest,
) -> None:
    assert "created" in await front.kubectl(
        "create", "-f", "-", input=document("mine", replicas=0), user="alice"
    )
    assert "mine" in await front.kubectl("-n", NAMESPACE, "get", "md", user="alice")
    assert (
        await front.kubectl(
            "-n", NAMESPACE, "auth", "can-i", "create", "md", user="alice"
        )
    ).startswith("yes")
    assert (
        await front.kubectl(
            "-n", "team-b", "auth", "can-i", "get", "md", user="alice", fails=True
        )
    ).startswith("no")
    for arguments in (
        ("-n", NAMESPACE, "get", "md"),
        ("-n", NAMESPACE, "get", "md", "mine"),
        ("get", "ic"),
        ("get", "md", "-A"),
    ):
        assert "Forbidden" in await front.kubectl(*arguments, user="bob", fails=True)
    assert "Unauthorized" in await front.kubectl(
        "-n", NAMESPACE, "get", "md", user="nobody", fails=True
    )
    await front.kubectl(
        "-n", NAMESPACE, "delete", "md/mine", "--timeout=240s", user="alice"
    )


async def test_changes_by_the_cli_are_visible(front: FrontUnderTest) -> None:
    await front.plane.apply(a_deployment("outside", NAMESPACE, replicas=0))
    await eventually(
        lambda: _names(front), lambda names: "outside" in names, what="the deployment"
    )
    await front.plane.delete("ModelDeployment", "outside", NAMESPACE)
    await eventually(
        lambda: _names(front),
        lambda names: "outside" not in names,
        what="the end of the deployment",
    )


async def _names(front: FrontUnderTest) -> str:
    return await front.kubectl("-n", NAMESPACE, "get", "md", "-o", "name")


async def test_a_user_with_a_certificate_writes_by_the_rules_and_is_audited(
    front: FrontUnderTest,
) -> None:
    written = json.dumps(a_deployment("kept", "team-m", replicas=0))
    assert "created" in await front.kubectl(
        "apply", "-f", "-", input=written, user=CERTIFIED
    )
    assert "scaled" in await front.kubectl(
        "-n", "team-m", "scale", "md/kept", "--replicas=1", user=CERTIFIED
    )
    told = await front.kubectl(
        "apply", "-f", "-", input=document("kept"), user=CERTIFIED, fails=True
    )
    assert f'User "{CERTIFIED}" cannot' in told
    kept = await front.plane.describe("ModelDeployment", "kept", "team-m")
    assert kept["status"]["lastScale"]["by"] == CERTIFIED
    assert "deleted" in await front.kubectl(
        "-n", "team-m", "delete", "md/kept", "--timeout=240s", user=CERTIFIED
    )
    lines = [line for line in front.audit() if line["user"] == CERTIFIED]
    created, scaled, deleted = [line for line in lines if line["outcome"] == "Success"]
    assert [line["verb"] for line in (created, scaled, deleted)] == [
        "create",
        "patch",
        "delete",
    ]
    assert scaled["changes"] == [{"path": "spec.replicas", "old": 0, "new": 1}]
    assert (
        int(created["after"])
        <= int(scaled["before"])
        < int(scaled["after"])
        <= int(deleted["before"])
    )
    assert scaled["requestId"] in kept["appliedRequestIds"]
    assert all(
        "system:masters" in line["groups"] and line["address"] == "127.0.0.1"
        for line in lines
    )


async def test_users_choose_the_handling_of_unknown_fields(
    front: FrontUnderTest,
) -> None:
    tree = a_deployment("unknown", NAMESPACE, replicas=0)
    tree["spec"]["colour"] = "blue"
    written = json.dumps(tree)
    told = await front.kubectl("apply", "-f", "-", input=written, fails=True)
    assert "spec.colour: unknown field" in told
    told = await front.kubectl("apply", "--validate=warn", "-f", "-", input=written)
    assert 'Warning: unknown field "spec.colour"' in told
    assert "created" in told
    tree["spec"]["replicas"] = 1
    told = await front.kubectl(
        "apply", "--validate=false", "-f", "-", input=json.dumps(tree)
    )
    assert (told, "colour" in told) == (
        "modeldeployment.modelplane.ai/unknown configured\n",
        False,
    )
    kept = await front.plane.describe("ModelDeployment", "unknown", NAMESPACE)
    assert (kept["spec"]["replicas"], "colour" in kept["spec"]) == (1, False)
    await front.kubectl("-n", NAMESPACE, "delete", "md/unknown", "--timeout=240s")


async def test_a_user_with_an_id_token_writes_at_a_front_process(
    plane: ControlPlane, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "issuer")
    authority.ensure()
    # The flags from docs/how-to/users.md.
    shown = dict(
        re.findall(
            r"(MODELPLANE_FRONT__OIDC_[A-Z_]+)=(\S+)",
            (ROOT / "docs" / "how-to" / "users.md").read_text(),
        )
    )
    async with an_issuer(authority) as issuer:
        here = {
            "MODELPLANE_FRONT__OIDC_ISSUER_URL": issuer.url,
            "MODELPLANE_FRONT__OIDC_CA_FILE": str(authority.ca),
        }
        assert len(shown) == 5
        async with a_front_program(plane, tmp_path, {**shown, **here}) as front:
            said: Json = {"email": "ann@example.com", "groups": ["team-o"]}
            token = issuer.token(**said)
            written = json.dumps(a_deployment("issued", "team-o", replicas=0))
            assert "created" in await front.kubectl(
                "apply", "-f", "-", input=written, user=token
            )
            assert "scaled" in await front.kubectl(
                "-n", "team-o", "scale", "md/issued", "--replicas=1", user=token
            )
            kept = await plane.describe("ModelDeployment", "issued", "team-o")
            assert (kept["spec"]["replicas"], kept["status"]["lastScale"]["by"]) == (
                1,
                "ann@example.com",
            )
            told = await front.kubectl(
                "apply", "-f", "-", input=document("issued"), user=token, fails=True
            )
            assert 'User "ann@example.com" cannot' in told
            # Invalid tokens: not signed by the issuer, or with an unverified address.
            # The last one has a group without rights.
            for bad in (
                issuer.token(rsa_key(2), **said),
                issuer.token(**said, email_verified=False),
            ):
                assert "Unauthorized" in await front.kubectl(
                    "-n", "team-o", "get", "md", user=bad, fails=True
                )
            other = issuer.token(email="eve@example.com", groups=["team-a"])
            for namespace in ("team-o", "team-a"):
                assert "Forbidden" in await front.kubectl(
                    "-n", namespace, "get", "md", user=other, fails=True
                )
            assert "deleted" in await front.kubectl(
                "-n", "team-o", "delete", "md/issued", "--timeout=240s", user=token
            )
            lines = [
                line
                for line in front.audit()
                if line["user"] == "ann@example.com" and line["outcome"] == "Success"
            ]
            assert [line["verb"] for line in lines] == ["create", "patch", "delete"]
            assert all("oidc:team-o" in line["groups"] for line in lines)
            assert token not in (front.folder / "front.log").read_text() + json.dumps(
                front.audit()
            )


async def test_the_selector_of_a_scale_selects_only_its_replicas(
    front: FrontUnderTest,
) -> None:
    longest = "selected-" + "x" * (63 - len("selected-"))
    wanted = {
        ("team-a", "selected"): 1,
        ("team-a", longest): 1,
        ("team-a", longest[:-1]): 1,
        ("team-sel", "selected"): 1,
    }
    for (namespace, name), replicas in wanted.items():
        status, told = await front.ask(
            "POST",
            DEPLOYMENTS.format(namespace),
            a_deployment(name, namespace, replicas=replicas),
        )
        assert status == 201, told
    selectors = dict[tuple[str, str], str]()

    async def selected() -> dict[tuple[str, str], list[str]]:
        return {which: await _selected(front, *which, selectors) for which in wanted}

    def as_wanted(found: dict[tuple[str, str], list[str]]) -> bool:
        return {which: len(names) for which, names in found.items()} == wanted

    found = await eventually(selected, as_wanted, what="the replicas")
    of_team = [
        selector
        for (namespace, _), selector in selectors.items()
        if namespace == "team-a"
    ]
    assert len(set(of_team)) == len(of_team) == 3
    listed = {
        (namespace, name) for (namespace, _), names in found.items() for name in names
    }
    assert len(listed) == sum(wanted.values())
    for namespace, name in wanted:
        await front.ask("DELETE", f"{DEPLOYMENTS.format(namespace)}/{name}")
    for namespace, name in wanted:
        await front.plane.gone("ModelDeployment", name, namespace)


async def _selected(
    front: FrontUnderTest,
    namespace: str,
    name: str,
    selectors: dict[tuple[str, str], str],
) -> list[str]:
    """Return the replicas that a Scale's selector selects, and record it."""
    _, scale = await front.ask("GET", f"{DEPLOYMENTS.format(namespace)}/{name}/scale")
    selector = selectors[namespace, name] = scale["status"].get("selector", "")
    if not selector:
        return []
    _, replicas = await front.ask(
        "GET",
        f"{BASE}/namespaces/{namespace}/modelreplicas?labelSelector={quote(selector)}",
    )
    return [item["metadata"]["name"] for item in replicas["items"]]
