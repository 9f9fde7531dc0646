"""Errors before anything is sent have a message, a next step and an exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from client.main import COMMANDS, GROUPS
from tests.client.conftest import Cli

ROOT = Path(__file__).parents[3]

DEPLOYMENT = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen}
spec:
  replicas: %s
  template:
    spec:
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: '%s'}]}]}
          template: {spec: {containers: [{name: engine, image: example.com/vllm:1}]}}
"""
GOOD = DEPLOYMENT % (2, 'device.driver == "gpu.nvidia.com"')
BAD = DEPLOYMENT % (1001, "device.capacity[")
REPLICA = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelReplica
metadata: {name: qwen-1}
spec:
  clusterName: oslo
  engines:
  - name: main
    members:
    - nodePoolName: h100
      deviceRequests:
      - name: gpu
        deviceClassName: gpu.nvidia.com
        selectors: [{cel: 'device.driver == "gpu.nvidia.com"'}]
      template: {spec: {containers: [{name: engine, image: example.com/vllm:1}]}}
"""

USAGE = [
    ("an unknown option", ["get", "md", "--nope"], 2, "no such option"),
    (
        "an unknown command",
        ["gett", "md"],
        2,
        "no such command 'gett'\n  did you mean get?",
    ),
    (
        "an unknown kind",
        ["get", "modeldeploymnet"],
        2,
        "did you mean ModelDeployment?",
    ),
    ("a verb of kubectl", ["create", "-f", "x"], 2, "  did you mean apply?"),
    (
        "an unknown subcommand",
        ["rollout", "restrat", "md/x"],
        2,
        "Did you mean 'restart'",
    ),
    (
        "an option without its value",
        ["get", "md", "-o"],
        2,
        "next: `modelplane get --help` shows the options and examples",
    ),
    (
        "a near option",
        ["get", "md", "--nmespace", "x"],
        2,
        "--namespace)\n  Usage: modelplane get [OPTIONS] {objects}...\nnext: ",
    ),
    ("nothing named", ["describe"], 2, "missing argument"),
    (
        "a name in all namespaces",
        ["get", "md", "qwen", "-A"],
        2,
        "an object with a name is in one namespace",
    ),
    (
        "scaling what has no replicas",
        ["scale", "ic/oslo", "--replicas", "1"],
        2,
        "has no replicas to scale",
    ),
    (
        "one below the bounds",
        ["scale", "md/qwen", "--replicas", "-1"],
        2,
        "must be between 0 and 1000, got -1",
    ),
    (
        "one above the bounds",
        ["scale", "md/qwen", "--replicas", "1001"],
        2,
        "must be between 0 and 1000, got 1001",
    ),
    ("a deletion of nothing", ["delete"], 2, "name either objects or files"),
    (
        "a deletion of objects and files",
        ["delete", "md/qwen", "-f", "x.yaml"],
        2,
        "name either objects or files",
    ),
    (
        "a deletion of all by a selector without content",
        ["delete", "md", "-l", " "],
        2,
        "-l is empty",
    ),
    (
        "a deletion by fields without content",
        ["delete", "md", "--field-selector="],
        2,
        "--field-selector is empty",
    ),
    (
        "a deletion of a name and all",
        ["delete", "md/qwen", "--all"],
        2,
        "--all cannot be combined",
    ),
    (
        "a deletion of a name by label",
        ["delete", "md/qwen", "-l", "a=b"],
        2,
        "a selector cannot be combined with a name, here 'qwen'",
    ),
    (
        "a deletion of all of no kind",
        ["delete", "-f", "x.yaml", "--all"],
        2,
        "no meaning without a kind",
    ),
    ("a deletion of everything", ["delete", "all", "--all"], 2, "the whole fleet"),
    ("a deletion of a whole kind", ["delete", "md"], 2, "which ModelDeployment?"),
    (
        "a name by label",
        ["get", "md/qwen", "-l", "a=b"],
        2,
        "a selector cannot be combined with a name, here 'qwen'",
    ),
    (
        "force without a reason",
        ["delete", "md/qwen", "--force"],
        2,
        "--force needs --reason",
    ),
    (
        "force with an unknown scope",
        ["delete", "md/qwen", "--force", "--reason", "x", "--scope", "most"],
        2,
        "must be step or all",
    ),
    ("a bad label selector", ["get", "md", "-l", "a b"], 2, "is not a label selector"),
    (
        "a label selector without end",
        ["get", "md", "-l", "a," * 10_000],
        2,
        "is longer than 16384 characters",
    ),
    ("commas for a kind", ["get", ",,", "qwen"], 2, "names no kind"),
    ("no files", ["apply"], 2, "nothing to read"),
    (
        "a file that is not there",
        ["apply", "-f", "/nope.yaml"],
        2,
        "cannot read /nope.yaml",
    ),
    ("logs of a cluster", ["logs", "ic/eu"], 2, "has no engines"),
    ("a command of no engine", ["exec", "qwen", "--", "ls"], 2, "write `md/NAME`"),
    ("no command", ["exec", "md/qwen"], 2, "no command to run"),
    ("no port", ["port-forward", "md/qwen", "http"], 2, "is no pair of ports"),
    ("logs where nothing ever ran", ["logs"], 3, "there are no logs"),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("story", "words", "code", "say"), USAGE, ids=[row[0] for row in USAGE]
)
def test_bad_usage_is_refused_before_anything_is_sent(
    cli: Cli, story: str, words: list[str], code: int, say: str
) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (code, ""), story
    assert say in result.err
    assert "Traceback" not in result.err


CONNECTED = [
    ["get", "md"],
    ["describe", "md/qwen"],
    ["scale", "md/qwen", "--replicas", "1"],
    ["delete", "md/qwen"],
    ["events"],
    ["ui"],
    ["ui", "md/qwen"],
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "words", CONNECTED, ids=[f"{' '.join(words[:2])}" for words in CONNECTED]
)
def test_without_temporal_every_command_says_how_to_get_one(
    cli: Cli, words: list[str]
) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (6, "")
    assert (
        result.err.splitlines()[0] == "error: Temporal at 127.0.0.1:1 does not answer"
    )
    assert "modelplane up" in result.err.splitlines()[-1]


@pytest.mark.usefixtures("nowhere")
def test_apply_without_temporal_says_how_to_get_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = cli("apply", "-f", str(tmp_path / "good.yaml"))
    assert result.code == 6
    assert "does not answer" in result.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("command", ["apply", "validate"])
def test_every_error_of_every_document_is_reported_at_once(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    (tmp_path / "a.yaml").write_text(BAD)
    (tmp_path / "b.yaml").write_text(GOOD.replace("name: engine", "name: vllm"))
    result = cli(command, "-f", str(tmp_path))
    assert result.code == 2
    assert "4 errors in the input; nothing was sent" in result.err
    assert "given twice" in result.err
    assert "spec.replicas: must be between 0 and 1000, got 1001" in result.err
    assert "does not compile" in result.err
    assert 'must be named engine, got "vllm"' in result.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "words", [["apply"], ["validate"], ["plan", "--offline"]], ids=" ".join
)
def test_a_document_without_kind_or_name_is_named_by_its_file_and_number(
    cli: Cli, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "a.yaml").write_text(
        f"{GOOD}---\nby: me\n---\n{GOOD.replace('name: qwen', 'labels: {a: b}')}"
    )
    (tmp_path / "b.yaml").write_text("kind: ModelCache\n")
    result = cli(*words, "-f", str(tmp_path))
    lines = [line.strip() for line in result.err.splitlines()]
    file, after = tmp_path / "a.yaml", GOOD.count("\n")
    assert result.code == 2
    assert (
        f"{file} document 2 (line {after + 2}): apiVersion: required field is missing"
        in lines
    )
    (unnamed,) = [line for line in lines if line.startswith(f"{file} document 3 ")]
    assert (
        "ModelDeployment default/(no name): metadata.name: required field is missing"
        in unnamed
    )
    assert (
        f"{tmp_path / 'b.yaml'} document 1 (line 1): ModelCache: apiVersion: "
        "required field is missing" in lines
    )
    assert lines[-1] == "next: fix these fields and run the command again"


@pytest.mark.usefixtures("nowhere")
def test_a_fleet_file_among_manifests_is_named_with_the_command_that_reads_it(
    cli: Cli,
) -> None:
    file = ROOT / "examples" / "fleets" / "three-regions.yaml"
    result = cli("validate", "-f", str(file.parent))
    assert result.code == 2
    assert (
        result.err.splitlines()[1]
        == f"  {file} document 1 (line 3): apiVersion: required field is missing"
    )
    assert result.err.splitlines()[-1].endswith(
        f"; fleet files are not manifests: `modelplane up --fleet {file}`"
    )


@pytest.mark.usefixtures("nowhere")
def test_kinds_of_the_control_plane_are_rejected_with_the_kind_to_write_instead(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "replica.yaml").write_text(REPLICA)
    result = cli("apply", "-f", str(tmp_path / "replica.yaml"))
    assert result.code == 2
    assert (
        "ModelReplica qwen-1: written by the control plane; write a ModelDeployment instead"
        in result.err
    )


@pytest.mark.usefixtures("nowhere")
def test_a_valid_manifest_needs_no_server_to_be_called_valid(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = cli("validate", "-f", str(tmp_path / "good.yaml"))
    assert (result.code, result.out, result.err) == (
        0,
        "modeldeployment/qwen is valid\n",
        "",
    )


@pytest.mark.usefixtures("nowhere")
def test_broken_yaml_is_shown_with_file_and_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("kind: [\n")
    result = cli("validate", "-f", str(tmp_path / "broken.yaml"))
    assert result.code == 2
    assert "broken.yaml" in result.err
    assert "line" in result.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["validate", "-f", "-"],
            "error: standard input is not UTF-8 text\nnext: manifests are YAML or JSON in UTF-8\n",
        ),
        (
            ["validate", "-f", "FILE"],
            "error: FILE is not UTF-8 text\nnext: manifests are YAML or JSON in UTF-8\n",
        ),
        (
            ["policy", "set", "-f", "FILE"],
            "error: FILE is not UTF-8 text\nnext: name a policy file in YAML or JSON\n",
        ),
        (
            ["up", "--fleet", "FILE"],
            "error: the fleet file is not usable\n  FILE is not UTF-8 text\nnext: ",
        ),
    ],
)
def test_a_binary_file_is_named(
    words: list[str],
    says: str,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xa7\x00\xff")
    with file.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        result = cli(*(str(file) if word == "FILE" else word for word in words))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(says.replace("FILE", str(file)))


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("text", ["", "# nothing else\n", "---\n"])
def test_an_empty_file_does_not_reset_the_policy(
    text: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    result = cli("policy", "set", "-f", str(tmp_path / "policy.yaml"))
    assert result.code == 2
    assert result.err == (
        f"error: {tmp_path}/policy.yaml is empty\nnext: write the policy; `{{}}` "
        "means that every field has its default\n"
    )


@pytest.mark.usefixtures("nowhere")
def test_an_address_is_not_mistaken_for_a_file(cli: Cli) -> None:
    result = cli("apply", "-f", "https://example.com/model.yaml")
    assert result.code == 2
    assert result.err == (
        "error: https://example.com/model.yaml is an address, and only files and folders are read\n"
        "next: download it: `curl -fsSL https://example.com/model.yaml | modelplane … -f -`\n"
    )


@pytest.mark.usefixtures("nowhere")
def test_an_empty_file_is_an_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("---\n")
    result = cli("apply", "-f", str(tmp_path / "empty.yaml"))
    assert result.code == 2
    assert "no manifest in" in result.err


@pytest.mark.usefixtures("nowhere")
def test_manifests_are_read_from_standard_input(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(GOOD)
    with (tmp_path / "in").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert cli("validate", "-f", "-").out == "modeldeployment/qwen is valid\n"


@pytest.mark.usefixtures("nowhere")
def test_a_warning_does_not_stop_anything(cli: Cli, tmp_path: Path) -> None:
    flat = GOOD.replace("  template:\n    spec:\n      engines:\n", "  engines:\n")
    (tmp_path / "flat.yaml").write_text(flat)
    result = cli("validate", "-f", str(tmp_path / "flat.yaml"))
    assert (result.code, result.out) == (0, "modeldeployment/qwen is valid\n")
    assert result.err.startswith(
        "warning: ModelDeployment default/qwen: spec: flat ModelDeployment shape is deprecated"
    )


@pytest.mark.usefixtures("nowhere")
def test_the_namespace_option_counts_where_the_manifest_names_none(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(GOOD.replace("replicas: 2", 'replicas: "2"'))
    result = cli("validate", "-n", "ml-team", "-f", str(tmp_path / "bad.yaml"))
    assert (
        "ModelDeployment ml-team/qwen: spec.replicas: must be an integer" in result.err
    )


@pytest.mark.usefixtures("nowhere")
def test_the_kinds_are_listed_with_what_is_applied_to_get_one(cli: Cli) -> None:
    rows = [line.split() for line in cli("schema").out.splitlines()]
    assert rows[0] == [
        "NAME",
        "SHORTNAMES",
        "APIVERSION",
        "NAMESPACED",
        "KIND",
        "APPLIED",
    ]
    assert [
        "modeldeployments",
        "md",
        "modelplane.ai/v1alpha1",
        "true",
        "ModelDeployment",
        "yes",
    ] in rows
    assert [
        "servingstacks",
        "ss",
        "infrastructure.modelplane.ai/v1alpha1",
        "true",
        "ServingStack",
        "as",
        "InferenceCluster",
    ] in rows


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", ["md", "modeldeployments", "ModelDeployment"])
def test_the_schema_of_a_kind_can_be_named_in_every_form(cli: Cli, name: str) -> None:
    assert '"replicas"' in cli("schema", name).out


@pytest.mark.usefixtures("nowhere")
def test_help_lists_the_exit_codes(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert "6 control plane unreachable" in " ".join(result.out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_can_be_loaded_and_is_listed_in_help(
    cli: Cli, name: str
) -> None:
    assert "Usage:" in cli(name, "--help").out
    assert re.search(rf"^  {name} +\w", cli("--help").out, flags=re.MULTILINE)


def test_help_shows_every_command_in_one_group(cli: Cli) -> None:
    shown = cli("--help").out
    assert [f"\n{title}:\n" in shown for title in GROUPS] == [True] * len(GROUPS)
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


@pytest.mark.parametrize("words", [[], ["rollout"]], ids=["program", "group"])
def test_a_group_without_a_command_shows_its_help(cli: Cli, words: list[str]) -> None:
    shown = cli(*words)
    assert (shown.code, "Usage: modelplane" in shown.err) == (2, True)
    assert "error: " not in shown.err


def test_a_reader_that_stops_early_ends_a_command_well() -> None:
    program = "from client.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "schema", "md"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as started:
        assert started.stdout
        assert started.stderr
        started.stdout.close()
        assert (started.stderr.read(), started.wait(60)) == (b"", 0)


HEAVY = {"temporalio", "google.protobuf", "pydantic", "httpx", "rich", "ruamel.yaml"}


@pytest.mark.parametrize(
    ("words", "front", "imported", "most"),
    [
        (["--help"], False, set(), 280),
        # The parser itself uses pydantic.
        (["get", "--help"], False, {"ruamel.yaml", "pydantic"}, 380),
        # Through a front, which does not answer here, a command needs no Temporal.
        (["get", "md"], True, HEAVY - {"temporalio", "google.protobuf"}, 720),
        (["explain", "md.spec"], False, {"pydantic", "rich", "ruamel.yaml"}, 420),
        (["get", "md"], False, HEAVY - {"httpx"}, 860),
    ],
    ids=["help", "help of get", "through a front", "fields", "through Temporal"],
)
@pytest.mark.usefixtures("nowhere")
def test_a_command_imports_only_the_modules_that_it_uses(
    words: list[str], front: bool, imported: set[str], most: int
) -> None:
    program = (
        "import json, sys; from client.main import run; run(sys.argv[1:]); "
        f"print(json.dumps([sorted({HEAVY} & set(sys.modules)), len(sys.modules)])); "
        # Python's own exit may abort after a call to Temporal.
        "from fleet_client.temporal.shutdown import exit_process; exit_process(0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env={**os.environ, "MODELPLANE_SERVER": "http://127.0.0.1:1"}
        if front
        else None,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found, number = json.loads(ended.stdout.splitlines()[-1])
    assert (set(found), number < most) == (imported, True), number


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "namespace", ["No_Such", 'a" OR ModelplaneNamespace != "a', "-a", "a" * 64]
)
@pytest.mark.parametrize(
    "words",
    [["get", "md"], ["scale", "md/qwen", "--replicas", "1"], ["delete", "md/qwen"]],
)
def test_an_invalid_namespace_is_rejected_before_anything_is_sent(
    words: list[str], namespace: str, cli: Cli
) -> None:
    result = cli(*words, "--namespace", namespace)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"error: -n {namespace!r} is not the name of a namespace\n"
        "next: write lower-case letters, digits and hyphens, at most 63; "
        "`modelplane get all -A` shows those in use\n"
    )
