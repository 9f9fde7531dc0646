"""YAML in the documents: whole manifests, and parts of a ModelDeployment, are accepted
as they are written.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_types.resources.parts import probes
from api_types.resources.parts.pod_policy import PodPolicy
from api_types.validation.manifests import admit
from fleet_client.checks import CHECKS
from front.access.access_file import AccessFile
from front.access.signing import CallersFile
from front.scaling.scraping import ScrapeFile
from tests.activities.render.builders import a_member, an_engine, container, render
from tests.api_types.builders import a_deployment

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROBES = (ROOT / "docs" / "how-to" / "probes.md").read_text()
POD_POLICY = (ROOT / "docs" / "how-to" / "pod-policy.md").read_text()


def blocks() -> Iterator[Any]:
    """Every block of YAML, with the document that it is in."""
    for path in DOCUMENTS:
        for index, text in enumerate(
            re.findall(
                r"^ *```ya?ml\n(.*?)^ *```",
                path.read_text(),
                flags=re.MULTILINE | re.DOTALL,
            )
        ):
            yield pytest.param(text, id=f"{path.name}-{index}")


def laid_over(base: Any, part: Any) -> Any:
    """Lay a part over a document, lists item by item."""
    if isinstance(base, dict) and isinstance(part, dict):
        return base | {
            key: laid_over(base.get(key), value) for key, value in part.items()
        }
    if isinstance(base, list) and isinstance(part, list):
        return [
            laid_over(base[at] if at < len(base) else None, each)
            for at, each in enumerate(part)
        ] + base[len(part) :]
    return copy.deepcopy(part)


def rows(text: str, head: str) -> list[list[str]]:
    """The rows of the table with that head, as lists of cells."""
    lines = text.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("text", list(blocks()))
def test_every_block_is_a_manifest_or_a_part_of_a_deployment(text: str) -> None:
    for document in yaml.safe_load_all(text):
        if "rules" in document:
            AccessFile.model_validate(document)
            continue
        if "callers" in document:
            CallersFile.model_validate(document)
            continue
        if "deployments" in document:
            ScrapeFile.model_validate(document)
            continue
        whole = document if "kind" in document else laid_over(a_deployment(), document)
        assert admit(whole, CHECKS).warnings == ()


def test_the_documents_of_fields_have_a_block_each() -> None:
    with_blocks = {str(block.id).rpartition("-")[0] for block in blocks()}
    assert {"stop-pods.md", "engines.md", "pod-policy.md"} <= with_blocks


def test_the_table_of_grants_has_every_field_in_the_order_of_the_code_and_no_other() -> (
    None
):
    listed = [
        row[0].strip("`").removesuffix("[]")
        for row in rows(POD_POLICY, "| Field | Of | Bounds | Grant |")
    ]
    assert listed == [
        field.alias or name for name, field in PodPolicy.model_fields.items()
    ]


@pytest.mark.slow
def test_the_table_of_startup_times_is_what_is_rendered() -> None:
    """The probe is asked in whole periods, so it has up to one more."""
    table = {
        cache: int(seconds)
        for cache, seconds in rows(PROBES, "| Volume of the cache, GiB | Seconds |")
    }
    assert set(table) > {"none"}
    engine = an_engine("main", {**a_member(), "probes": {}})
    for cache, seconds in table.items():
        probe = container(
            render(engine, cache_gib=0 if cache == "none" else int(cache))
        )["startupProbe"]
        assert (probe["periodSeconds"], probe["failureThreshold"]) == (
            10,
            -(-seconds // 10),
        ), cache


def test_the_bounds_and_defaults_of_probes_are_those_of_the_code() -> None:
    default = probes.Liveness()
    text = " ".join(PROBES.split())
    assert (
        f"`startupSeconds`, from {probes.STARTUP_SECONDS[0]} to {probes.STARTUP_SECONDS[1]}."
        in text
    )
    for field, (least, most), value in (
        ("periodSeconds", probes.PERIOD_SECONDS, default.period_seconds),
        ("timeoutSeconds", probes.TIMEOUT_SECONDS, default.timeout_seconds),
        ("failureThreshold", probes.FAILURES, default.failure_threshold),
    ):
        assert f"`{field}` ({least} to {most}, {value} by default)" in text
