"""The value of `-o` of `get`: a format, a JSONPath template, or columns of the user."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from api_types.text.printable import escaped
from client.output.formats import Format, one_or_list, render, shown
from fleet_client.errors import Refused
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.tree import Tree

_SHOWN_MAX = 80
_JSONPATH, _CUSTOM = "jsonpath=", "custom-columns="


class CustomColumn(NamedTuple):
    """A column of `-o custom-columns`: its title, and how to find its values."""

    title: str
    find: Callable[[Any], Sequence[Any]]


@dataclass(frozen=True)
class OutputChoice:
    """The value of `-o` of `get`: a format, or a template of the user.

    `template` gets the list of objects, or a single named object. `custom` are titles
    and paths of columns.
    """

    format: Format | None = None
    template: Callable[[Any], str] | None = None
    custom: tuple[CustomColumn, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "OutputChoice":
        """Parse the value of `-o`. Raise `Refused` with the accepted ones."""
        if text.startswith(_JSONPATH):
            from client.output.jsonpath import template_of  # noqa: PLC0415 - slow to import

            return cls(template=template_of(text.removeprefix(_JSONPATH)))
        if text.startswith(_CUSTOM):
            return cls(custom=tuple(_custom_columns(text.removeprefix(_CUSTOM))))
        if text.startswith("go-template"):
            raise Refused(
                "-o go-template is not supported",
                next_step="use `-o jsonpath=TEMPLATE`, or `-o json` with a program such as jq",
            )
        try:
            return cls(Format(text))
        except ValueError:
            accepted = ", ".join(
                [*Format, f"{_JSONPATH}TEMPLATE", f"{_CUSTOM}TITLE:PATH"]
            )
            raise Refused(
                f"-o {escaped(text[:_SHOWN_MAX])!r} is no output format",
                next_step=f"use one of: {accepted}",
            ) from None

    @property
    def is_table(self) -> bool:
        """Return whether it is the table of a kind, with or without more columns."""
        return self.format in {Format.TABLE, Format.WIDE}

    @property
    def shows_empty_list(self) -> bool:
        """Return whether no objects are an empty list, which programs can read."""
        return self.format in {Format.JSON, Format.YAML}

    def render(self, trees: Sequence[Tree], *, single: bool) -> str:
        """Return objects in a machine-readable form, not as a table.

        A template ends without a line break, as with kubectl, unless it has one.
        """
        if self.template is not None:
            return self.template(one_or_list(trees, single=single))
        assert self.format is not None  # noqa: S101 - columns have no such form
        return f"{render(trees, self.format, single=single)}\n"


def _custom_columns(text: str) -> Iterator[CustomColumn]:
    from client.output.jsonpath import path_of  # noqa: PLC0415 - slow to import

    for column in text.split(","):
        title, colon, path = column.partition(":")
        if not (title and colon and path):
            raise Refused(
                f"-o custom-columns: {column!r} is no column",
                next_step="write TITLE:PATH, such as `NAME:.metadata.name,PHASE:.status.phase`",
            )
        yield CustomColumn(title, path_of(path))


def sorted_by(
    path: str | None,
) -> Callable[[Sequence[ListedObject]], Sequence[ListedObject]]:
    """Return the order of `--sort-by`: numbers by value, before texts by alphabet.

    Objects without a value at the path come first. Without a path, the order stays.
    """
    if path is None:
        return lambda found: found
    from client.output.jsonpath import path_of  # noqa: PLC0415 - slow to import

    find = path_of(path)

    def key(one: ListedObject) -> tuple[int, float, str]:
        values = find(one.tree)
        if not values:
            return (0, 0, "")
        if isinstance(values[0], int | float):
            return (1, values[0], "")
        return (2, 0, shown(values[0]))

    return lambda found: sorted(found, key=key)
