"""The objects in the `crds/` folders of a chart at all levels.

A hostile chart cannot harm a worker.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Callable

import pytest

from activities.clients.helm import crds
from activities.clients.helm.crds import Unpackable, read_crds
from tests.environment.charts import PackedChart, chart
from tests.random_cases import cases, generator


def crd(name: str) -> str:
    return (
        "apiVersion: apiextensions.k8s.io/v1\nkind: "
        f"CustomResourceDefinition\nmetadata:\n  name: {name}\n"
    )


def names(archive: bytes) -> list[str]:
    return [each["metadata"]["name"] for each in read_crds(archive)]


def with_crd(name: str, *subcharts: PackedChart, packed: bool = True) -> PackedChart:
    return chart(
        name, crds={f"{name}.yaml": crd(name)}, subcharts=subcharts, packed=packed
    )


def tar(
    *entries: tuple[str, bytes],
    change: Callable[[tarfile.TarInfo], None] = lambda _: None,
    form: int = tarfile.PAX_FORMAT,
) -> bytes:
    """Pack files by their paths, with headers that a test changes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=form) as archive:
        for path, content in entries:
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            change(entry)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


# Levels of subcharts


@pytest.mark.parametrize(
    ("archive", "expected"),
    [
        pytest.param(with_crd("top").archive, ["top"], id="in the chart"),
        pytest.param(
            with_crd("top", with_crd("sub"), packed=False).archive,
            ["top", "sub"],
            id="in an unpacked subchart",
        ),
        pytest.param(
            with_crd("top", with_crd("sub")).archive,
            ["top", "sub"],
            id="in a packed subchart",
        ),
        pytest.param(
            chart("top", subcharts=[with_crd("crds")], packed=False).archive,
            ["crds"],
            id="in a subchart called crds",
        ),
        pytest.param(
            chart("crds", crds={"a.yaml": crd("a")}).archive,
            ["a"],
            id="in a chart called crds",
        ),
        pytest.param(
            chart("charts", subcharts=[with_crd("sub")]).archive,
            ["sub"],
            id="in a chart called charts",
        ),
        pytest.param(
            with_crd("a", with_crd("b", with_crd("c"))).archive,
            ["a", "b", "c"],
            id="packed in a packed one",
        ),
        pytest.param(
            with_crd("a", with_crd("b", with_crd("c"), packed=False)).archive,
            ["a", "b", "c"],
            id="unpacked in a packed one",
        ),
        pytest.param(
            with_crd("a", with_crd("b", with_crd("c")), packed=False).archive,
            ["a", "b", "c"],
            id="packed in an unpacked one",
        ),
        pytest.param(
            with_crd(
                "a", with_crd("b", with_crd("c"), packed=False), packed=False
            ).archive,
            ["a", "b", "c"],
            id="unpacked in an unpacked one",
        ),
        pytest.param(
            chart("none", templates={"crds.yaml": crd("rendered")}).archive,
            [],
            id="none in templates",
        ),
        pytest.param(chart("none").archive, [], id="none"),
    ],
)
def test_the_definitions_of_all_levels_are_collected(
    archive: bytes, expected: list[str]
) -> None:
    assert names(archive) == expected


def test_every_document_of_a_file_and_every_kind_is_given_in_the_order_of_paths() -> (
    None
):
    files = {
        "b.yaml": f"# a comment\n---\n{crd('b1')}---\n{crd('b2')}---\n",
        "a.json": json.dumps(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
        ),
        "c.yml": crd("c"),
        "README.md": "# not a manifest",
        "empty.yaml": "",
        "folder/d.yaml": crd("d"),
        "list.yaml": "- 1\n- 2\n",
    }
    assert names(chart("top", crds=files).archive) == ["a", "b1", "b2", "c", "d"]


def test_the_objects_are_as_they_are_written() -> None:
    text = (
        crd("a")
        + 'spec: {versions: [{name: v1, served: true, floats: 1.0, on: "on", text: 1.30-x}]}\n'
    )
    assert read_crds(chart("top", crds={"a.yaml": text}).archive)[0]["spec"] == {
        "versions": [
            {"name": "v1", "served": True, "floats": 1.0, "on": "on", "text": "1.30-x"}
        ]
    }


@pytest.mark.parametrize(
    "form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_archives_of_all_forms_are_read(form: int) -> None:
    long = f"top/crds/{'f' * 60}/{'g' * 60}.yaml"
    assert names(
        tar(
            ("./top/crds/a.yaml", crd("a").encode()),
            (long, crd("b").encode()),
            form=form,
        )
    ) == ["a", "b"]


def test_folders_and_links_are_passed_over() -> None:
    def links(entry: tarfile.TarInfo) -> None:
        if entry.name.endswith("link.yaml"):
            entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, "/etc/passwd", 0
        if entry.name.endswith("folder.yaml"):
            entry.type, entry.size = tarfile.DIRTYPE, 0

    entries = [
        (f"top/crds/{name}.yaml", crd(name).encode())
        for name in ("link", "folder", "file")
    ]
    assert names(tar(*entries, change=links)) == ["file"]


# Hostile charts


def refused(archive: bytes) -> str:
    with pytest.raises(Unpackable) as raised:
        read_crds(archive)
    return str(raised.value)


@pytest.mark.parametrize(
    "path",
    [
        "../crds/a.yaml",
        "top/../../crds/a.yaml",
        "top/charts/../crds/a.yaml",
        "/top/crds/a.yaml",
        "/crds/a.yaml",
    ],
)
def test_paths_that_lead_out_of_a_chart_are_refused(path: str) -> None:
    assert (
        refused(tar((path, crd("a").encode())))
        == "the path of one of its files leads out of it"
    )


@pytest.mark.parametrize("packed", [True, False])
def test_subcharts_may_be_packed_eight_levels_deep_and_no_deeper(packed: bool) -> None:
    made = with_crd("c1")
    for level in range(2, 9):
        made = with_crd(f"c{level}", made, packed=packed)
    assert len(names(made.archive)) == 8
    if packed:
        assert (
            refused(with_crd("c9", made).archive)
            == "it has subcharts more than 8 levels deep"
        )


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"no archive",
        b"\x1f\x8b",
        gzip.compress(b""),
        gzip.compress(b"no tar" * 1000),
    ],
    ids=range(5),
)
def test_an_archive_that_is_not_a_chart_is_refused(archive: bytes) -> None:
    assert refused(archive).startswith("its archive cannot be read: ")


def test_a_file_that_is_not_yaml_is_rejected_with_its_path() -> None:
    assert refused(chart("top", crds={"a.yaml": "a: ["}).archive).startswith(
        "top/crds/a.yaml cannot be read: "
    )
    assert refused(tar(("top/crds/a.yaml", b"\xff\xfe\x00"))).startswith(
        "top/crds/a.yaml cannot be read: "
    )


def bomb(size: int) -> bytes:
    """A file of zeros in `templates/`, which is unpacked but not read."""
    return tar(("top/templates/zeros", bytes(size)))


def test_a_chart_that_grows_beyond_the_bound_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crds, "_BYTES_MAX", 4 << 20)
    assert refused(bomb(5 << 20)) == "it has more than 4 MiB"
    small = bomb(3 << 20)
    assert names(small) == []
    # One limit covers the chart and its subcharts.
    assert (
        refused(
            chart(
                "top",
                subcharts=[PackedChart(f"c{n}", "1.0.0", small) for n in range(2)],
            ).archive
        )
        == "it has more than 4 MiB"
    )


def test_long_headers_count_like_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crds, "_BYTES_MAX", 4 << 20)

    def long_header(entry: tarfile.TarInfo) -> None:
        entry.pax_headers = {"comment": "x" * (6 << 20)}

    assert refused(tar(("top/a", b""), change=long_header)) == "it has more than 4 MiB"


def test_a_file_of_holes_is_refused() -> None:
    size = 128 << 20

    def holes(entry: tarfile.TarInfo) -> None:
        entry.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.map": f"0,0,{size},0",
            "GNU.sparse.size": str(size),
        }

    assert (
        refused(tar(("top/crds/a.yaml", b""), change=holes))
        == "one of its files is larger than its archive"
    )


def test_a_chart_of_too_many_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crds, "_FILES_MAX", 10)
    assert (
        refused(tar(*((f"top/{n}", b"") for n in range(11))))
        == "it has more than 10 files"
    )
    assert names(tar(*((f"top/{n}", b"") for n in range(10)))) == []


def test_the_bounds_leave_room_for_the_largest_known_chart() -> None:
    assert (crds._BYTES_MAX, crds._FILES_MAX, crds._LEVELS_MAX) == (64 << 20, 20_000, 8)


@pytest.mark.random
def test_a_damaged_chart_is_either_rejected_or_read() -> None:
    whole = with_crd("top", with_crd("sub")).archive
    unpacked = gzip.decompress(whole)
    random = generator()
    for number in range(cases(400)):
        damaged = bytearray(whole if number % 2 else unpacked)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        if random.random() < 0.2:
            del damaged[random.randrange(len(damaged)) :]
        try:
            found = read_crds(
                bytes(damaged) if number % 2 else gzip.compress(bytes(damaged), 1)
            )
        except Unpackable:
            continue
        assert len(found) <= 2
