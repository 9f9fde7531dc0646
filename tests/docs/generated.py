"""The generated parts of the documentation: the settings reference, and command output.

`python -m tests.docs.generated` writes them, and so does `make docs-reference`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from api_types.engines.profiles import CUSTOM, FACTS, OVERRIDES, named
from api_types.environment import OTHERS, variable_of
from api_types.settings import Settings
from tests.docs.output import PROGRAM, output_of
from tests.docs.reference import drawings, pages

ROOT = Path(__file__).parents[2]
# A longer default is shown as a list below the table.
_DEFAULT_CHARACTERS_MAX = 80

TUTORIALS = ("docs/tutorials/model-team.md", "docs/tutorials/platform-team.md")
USE_CASES = sorted(
    file.relative_to(ROOT).as_posix()
    for file in (ROOT / "examples" / "use-cases").glob("*/README.md")
)
"""The README of each use case shows the plan of its files."""

_HEAD = """# Settings

This page is generated from the code: change the descriptions in `api_types/sections/`,
and run `make docs-reference`.

The worker, the front and the command line read the same settings, in this order of precedence:

1. Environment variables that begin with `MODELPLANE_`. A list or a mapping is JSON:
   `MODELPLANE_IMAGES__PULL_SECRETS='["mirror"]'`.
2. One YAML file, named by `MODELPLANE_CONFIG` (for one command: `modelplane --config FILE`). Without
   it, `modelplane` uses the settings of the local fleet while that fleet is running.
3. The defaults below.

The file nests the keys: `temporal.address` is the key `address` of the mapping `temporal`. An unknown
key in the file is an error, and so is an unknown variable that begins with `MODELPLANE_`. Other
variables have no effect. All errors are reported at once. Times are in seconds.
"""


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Return the key and the model of each group of settings, in the order of the code."""
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, BaseModel)
        yield field.alias or name, kind


def default_of(field: FieldInfo) -> str:
    """Return the default as a settings file writes it, empty for an empty value."""
    default = field.get_default(call_default_factory=True, validated_data={})
    if default in (None, "", (), {}):
        return ""
    if isinstance(default, bool | tuple | Mapping):
        return json.dumps(default, default=str)
    return str(default)


def _section(group: str, kind: type[BaseModel]) -> str:
    rows, lists = [], []
    for name, field in kind.model_fields.items():
        key = f"{group}.{field.alias or name}"
        default = default_of(field)
        shown = f"`{default}`" if default else ""
        if len(default) > _DEFAULT_CHARACTERS_MAX:
            shown = "see below"
            items = "".join(f"- `{item}`\n" for item in json.loads(default))
            lists.append(f"\nThe default of `{key}`:\n\n{items}")
        rows.append(
            f"| `{key}` | `{variable_of(key)}` | {shown} | {field.description} |\n"
        )
    summary = (kind.__doc__ or "").partition("\n")[0]
    head = "| Key | Variable | Default | Meaning |\n|---|---|---|---|\n"
    return f"\n## {group}\n\n{summary}\n\n{head}{''.join(rows)}{''.join(lists)}"


def settings_page() -> str:
    groups = "".join(_section(group, kind) for group, kind in sections())
    others = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OTHERS.items())
    return (
        f"{_HEAD}{groups}\n## Other variables\n\n"
        "These variables are not settings and have no key in the file.\n\n"
        f"| Variable | Meaning |\n|---|---|\n{others}"
    )


def with_output(page: str) -> str:
    """Return a document with the present output of the commands that it shows."""

    def renewed(block: re.Match[str]) -> str:
        lines = re.findall(r"^\$ (.*)$", block[1], flags=re.MULTILINE)
        if not all(line.startswith(PROGRAM) for line in lines):
            return block[0]  # tests/docs/test_tutorials.py runs it on a fleet
        shown = "\n".join(f"$ {line}\n{output_of(line)}" for line in lines)
        return f"```console\n{shown}\n```"

    text = (ROOT / page).read_text()
    return re.sub(r"(?ms)^```console\n(.*?)^```$", renewed, text)


_PROFILE_TABLE = "| Profile | Port | Health | Metrics | Loopback | Flag for the cache |"
_PROFILES_HEAD = """# Engine profiles

This page is generated from the code: change `api_types/engines/profiles.py`, and run
`make docs-reference`. [Describe an engine](../how-to/engines.md#profile-how-an-engine-listens) explains the
fields. Each value names the document of the engine, and the version, that it was read from.
"""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{value}`" if value else "none"


def profiles_page() -> str:
    """Return the page with each fact of each profile and its source."""
    wire = {attribute: field for field, attribute in OVERRIDES.items()}
    wire["listens_on"] = "default port"
    text = _PROFILES_HEAD
    for name, facts in FACTS.items():
        text += f"\n## {name}\n\n| Field | Value | Source |\n|---|---|---|\n"
        for field, fact in facts.items():
            shown = _shown(fact.value)
            if field == "metrics_port" and not fact.value:
                shown = "the port of requests"
            text += f"| {wire[field]} | {shown} | {fact.source} |\n"
    return text


def engines_page() -> str:
    """Return docs/how-to/engines.md with the present table of profiles."""
    rows = ""
    for name in (*FACTS, CUSTOM):
        one = named(name)
        metrics = f"`{one.metrics_path}`" if one.metrics_path else "none"
        if one.metrics_port:
            metrics += f" on {one.metrics_port}"
        cells = (
            name,
            str(one.listens_on),
            f"`{one.health_path}`",
            metrics,
            _shown(one.loopback),
            _shown(one.model_flag),
        )
        rows += f"| {' | '.join(cells)} |\n"
    text = (ROOT / "docs/how-to/engines.md").read_text()
    head = f"{_PROFILE_TABLE}\n|---|---|---|---|---|---|\n"
    table = re.compile(f"{re.escape(_PROFILE_TABLE)}\n(\\|.*\n)+")
    assert table.search(text), "docs/how-to/engines.md has no table of profiles"
    return table.sub(lambda _: head + rows, text)


_BILL = (
    "| Cost of | Object | Count | Per hour | Per month | Date of the price |\n"
    "|---|---|---|---|---|---|\n"
)


def first_cluster_page(cloud: str) -> str:
    """Return the page of a first cluster with the present bill of its example."""
    file = f"examples/clouds/first-{cloud}.yaml"
    plan = output_of(f"{PROGRAM} plan --offline -f {file} -o json")
    costs = json.loads(plan)["clouds"][0]["costs"]

    def span(start: object, most: object) -> str:
        return f"{start}" if start == most else f"{start} to {most}"

    def money(each: Mapping[str, Any]) -> str:
        hour, month = each["perHour"], each["perMonth"]
        months = (f"{float(month[at]):.2f}" for at in ("start", "most"))
        return f"{span(hour['start'], hour['most'])} | {span(*months)}"

    rows = ""
    for each in costs["items"]:
        count = span(each["start"], each["most"])
        cells = each["item"], f"`{each['object']}`", count, money(each), each["dated"]
        rows += f"| {' | '.join(cells)} |\n"
    rows += f"| sum | | | {money(costs)} | |\n"
    assert costs["unknown"] == [], "the example shows prices that the table has"
    text = (ROOT / f"docs/clouds/first-cluster-{cloud}.md").read_text()
    table = re.compile(f"{re.escape(_BILL)}(\\|.*\n)*")
    assert table.search(text), f"the page of {cloud} has no bill"
    return table.sub(lambda _: _BILL + rows, text)


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings_page,
    "docs/reference/engine-profiles.md": profiles_page,
    "docs/how-to/engines.md": engines_page,
    "docs/clouds/first-cluster-eks.md": partial(first_cluster_page, "eks"),
    "docs/clouds/first-cluster-gke.md": partial(first_cluster_page, "gke"),
    "README.md": partial(with_output, "README.md"),
    **{page: partial(with_output, page) for page in (*TUTORIALS, *USE_CASES)},
    **pages.PAGES,
    **drawings.DRAWINGS,
}


if __name__ == "__main__":
    for page, make in PAGES.items():
        path = ROOT / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make())
        print(page)  # noqa: T201
