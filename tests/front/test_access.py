"""Authorization: the access file and its rules, with a row for each verb and path of
the API.
"""

import hashlib
from pathlib import Path

import pytest

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused as Unusable
from front.access.access_file import AccessFile, AccessRules
from front.access.files import BadAccessFile, load
from front.configuration.users import access_rules
from front.serving.errors import RejectedRequest
from front.serving.requests import resource_of
from front.serving.resources import _verb

TOKEN = "token-of-alice"  # noqa: S105 - of this test
GROUP = "/apis/modelplane.ai/v1alpha1"
FILE = f"""
users:
- {{name: alice, groups: [team-a], tokenSha256: [{hashlib.sha256(TOKEN.encode()).hexdigest()}]}}
rules:
- groups: [team-a]
  namespaces: [a]
  resources: [modeldeployments, modeldeployments/scale]
  verbs: [get, list, watch, update, patch]
- {{users: [alice], clusterScoped: true, resources: [inferenceclasses], verbs: [list]}}
"""
ALLOWED = [
    ("GET", "namespaces/a/modeldeployments", ""),
    ("GET", "namespaces/a/modeldeployments", "watch=true"),
    ("GET", "namespaces/a/modeldeployments/x", ""),
    ("PUT", "namespaces/a/modeldeployments/x", ""),
    ("PATCH", "namespaces/a/modeldeployments/x", ""),
    ("GET", "namespaces/a/modeldeployments/x/scale", ""),
    ("PATCH", "namespaces/a/modeldeployments/x/scale", ""),
    ("GET", "inferenceclasses", ""),
]
REFUSED = [
    ("GET", "modeldeployments", ""),
    ("GET", "modeldeployments", "watch=1"),
    ("GET", "namespaces/b/modeldeployments", ""),
    (
        "GET",
        "namespaces/b/modeldeployments",
        "watch=true&fieldSelector=metadata.namespace%3Da",
    ),
    ("GET", "namespaces/b/modeldeployments/x", ""),
    ("PUT", "namespaces/b/modeldeployments/x", ""),
    ("PATCH", "namespaces/b/modeldeployments/x/scale", ""),
    ("GET", "namespaces/a/modeldeployments/x/status", ""),
    ("DELETE", "namespaces/a/modeldeployments/x", ""),
    ("DELETE", "namespaces/a/modeldeployments", ""),
    ("POST", "namespaces/a/modeldeployments", ""),
    ("GET", "namespaces/a/modelservices", ""),
    ("GET", "inferenceclasses/x", ""),
    ("GET", "inferenceclusters", ""),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "access.yaml"
    written.write_text(FILE)
    return written


def allowed(rules: AccessRules, method: str, path: str, query: str) -> bool:
    found, user = resource_of(f"{GROUP}/{path}"), rules.user_of(TOKEN)
    assert found, path
    assert user
    parameters = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    return rules.allows(user, found.attempt(_verb(method, found, parameters)))


@pytest.mark.parametrize(("method", "path", "query"), ALLOWED)
def test_rules_allow_the_named_requests(
    file: Path, method: str, path: str, query: str
) -> None:
    assert allowed(AccessRules(file), method, path, query)


@pytest.mark.parametrize(("method", "path", "query"), REFUSED)
def test_rules_allow_nothing_else(
    file: Path, method: str, path: str, query: str
) -> None:
    assert not allowed(AccessRules(file), method, path, query)


@pytest.mark.parametrize(
    "path",
    [
        "namespaces/a/inferenceclasses",
        "modeldeployments/x",
        "namespaces//modeldeployments",
        "namespaces/a/modeldeployments/x/scale/y",
        "namespaces/a/modeldeployments/x/exec",
        "namespaces/a/modelservices/x/scale",
        "namespaces/a/secrets",
    ],
)
def test_foreign_paths_are_no_resource(path: str) -> None:
    assert resource_of(f"{GROUP}/{path}") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_users_cannot_write_kinds_of_the_control_plane(method: str) -> None:
    for path in (
        "namespaces/a/modelreplicas/x",
        "namespaces/a/modelreplicas",
        "namespaces/a/modeldeployments/x/status",
    ):
        found = resource_of(f"{GROUP}/{path}")
        assert found
        with pytest.raises(RejectedRequest) as refusal:
            _verb(method, found, {})
        assert refusal.value.code == 405


def test_an_unknown_token_has_no_user(file: Path) -> None:
    rules = AccessRules(file)
    for token in (
        "",
        "token-of-bob",
        TOKEN + " ",
        TOKEN * 1000,
        hashlib.sha256(TOKEN.encode()).hexdigest(),
    ):
        assert rules.user_of(token) is None


@pytest.mark.parametrize("token", ["", "x" * 4097], ids=["empty", "long"])
def test_an_empty_or_long_token_has_no_user_even_if_the_file_has_its_hash(
    file: Path, token: str
) -> None:
    file.write_text(
        FILE.replace(
            hashlib.sha256(TOKEN.encode()).hexdigest(),
            hashlib.sha256(token.encode()).hexdigest(),
        )
    )
    assert AccessRules(file).user_of(token) is None


def test_a_changed_file_applies_at_once_and_an_invalid_one_never(file: Path) -> None:
    rules = AccessRules(file)
    _rewrite(file, "users: [")
    assert "is not valid YAML" in rules.refresh()
    assert rules.user_of(TOKEN)
    assert not rules.refresh()
    file.unlink()
    assert "No such file" in rules.refresh()
    assert rules.user_of(TOKEN)
    _rewrite(file, "{}")
    assert rules.refresh() == ""
    assert rules.user_of(TOKEN) is None


def _rewrite(file: Path, text: str) -> None:
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("users: [{name: a, tokenSha256: [secret-token]}]", "users.0.tokenSha256.0"),
        (
            "users: [{name: a, token: secret-token}]",
            "users.0.token: Extra inputs are not permitted",
        ),
        (
            "rules: [{verbs: [get], namespaces: [a]}]",
            "rules.0.resources: Field required",
        ),
        ("rules: [{verbs: [read], resources: ['*']}]", "rules.0.verbs.0"),
        ("- a", "Input should be a valid dictionary"),
        ("a: &a [*a]", "line 1"),
        ("users: [{name: a, tokenSha256: [secret-token", "is not valid YAML at line"),
        pytest.param("[" * 3_000, "is not valid YAML", marks=pytest.mark.slow),
        ("a: *secret-token", "is not valid YAML"),
    ],
)
def test_an_invalid_file_is_rejected_with_positions_but_without_values(
    tmp_path: Path, text: str, problem: str
) -> None:
    written = tmp_path / "access.yaml"
    written.write_text(text)
    with pytest.raises(BadAccessFile) as refusal:
        load(written, AccessFile)
    assert problem in str(refusal.value)
    assert "secret-token" not in str(refusal.value)


def test_a_file_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    written = tmp_path / "access.yaml"
    written.write_text("{}" + " " * 1024 * 1024)
    with pytest.raises(BadAccessFile, match="the limit is 1048576"):
        load(written, AccessFile)


def test_only_a_loopback_address_works_without_a_file(file: Path) -> None:
    assert access_rules(FrontSettings(listen="127.0.0.1:8443"), "127.0.0.1") is None
    assert access_rules(
        FrontSettings(listen="0.0.0.0:8443", access_file=file),
        "0.0.0.0",  # noqa: S104 - the point
    )
    with pytest.raises(Unusable, match="everybody may do everything"):
        access_rules(FrontSettings(listen="0.0.0.0:8443"), "0.0.0.0")  # noqa: S104 - the point
    with pytest.raises(Unusable, match="No such file"):
        access_rules(
            FrontSettings(listen="127.0.0.1:8443", access_file=file.parent / "none"),
            "127.0.0.1",
        )


def test_users_and_rules_are_loaded_once_per_change_of_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, taken = AccessRules(file), []
    use = AccessRules._use

    def noted(self: AccessRules, content: AccessFile) -> None:
        taken.append(content)
        use(self, content)

    monkeypatch.setattr(AccessRules, "_use", noted)
    for _ in range(3):
        assert not rules.refresh()
    assert not taken
    file.write_text(FILE.replace("alice", "alicia"))
    for _ in range(3):
        assert not rules.refresh()
    assert len(taken) == 1
    user = rules.user_of(TOKEN)
    assert user
    assert user.name == "alicia"
