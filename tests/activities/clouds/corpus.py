"""A corpus of answers of clouds, from public issues and documentation.

Each entry of `tests/data/clouds/<cloud>*.yaml` has the facts of one public source:

- `name`: unique in the corpus of a cloud.
- `source`: the URL of the issue or page.
- `request`: the call, `<service> <operation>`, or the observed object.
- `kind`: `call` (the default), an answer to the request; `issue`, a health issue or a
  condition of an object; or `behaviour`, a rule in words.
- `answer`: the parts of the answer, such as `code`, `status` and `message`; of a
  behaviour the text `described`.
- `verdict`: the meaning for Modelplane, a key of `VERDICTS`.
- `says`: words of the message for people. A verdict that needs a person has at least
  one, and it names the next step.
- `fake`: the scene in which the fake gives the answer without a scripted fault. Each
  behaviour has one. The scenes are functions of the tests that use the corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from api_types import errors

DATA = Path(__file__).parents[2] / "data" / "clouds"
KINDS = ("call", "issue", "behaviour")
EXISTS, GONE, HEALTHY = "already done", "gone", "healthy"
VERDICTS: Final[Mapping[str, type[errors.ModelplaneError] | None]] = {
    EXISTS: None,
    GONE: None,
    HEALTHY: None,
    "throttled": errors.Throttled,
    "server error": errors.ServerError,
    "not yet": errors.NotYet,
    "busy": errors.Busy,
    "dependency": errors.Dependency,
    "lack of capacity": errors.CapacityUnavailable,
    "quota": errors.QuotaExceeded,
    "credential": errors.CredentialsInvalid,
    "permission": errors.PermissionDenied,
    "final": errors.InvalidInput,
    "unsupported": errors.Unsupported,
    "name conflict": errors.NameConflict,
    "replace": errors.ReplaceRequired,
    "broken": errors.CloudObjectBroken,
}
"""The error class of each verdict. None: the answer is no error."""
_FOR_PEOPLE = ("final", "unsupported", "broken")


@dataclass(frozen=True)
class CorpusEntry:
    """One entry. See the module for its fields."""

    name: str
    source: str
    request: str
    verdict: str
    answer: Mapping[str, Any]
    kind: str = "call"
    says: tuple[str, ...] = ()
    fake: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields that only one cloud has."""

    @property
    def service(self) -> str:
        """The first word of the request."""
        return self.request.split()[0]

    @property
    def operation(self) -> str:
        """The last word of the request."""
        return self.request.split()[-1]


def entries_of(cloud: str) -> list[CorpusEntry]:
    """Return the entries of all files of a cloud, such as `aws`."""
    return [
        _entry(raw)
        for path in sorted(DATA.glob(f"{cloud}*.yaml"))
        for raw in yaml.safe_load(path.read_text())
    ]


def verdict_of(error: errors.ModelplaneError) -> str:
    """Return the verdict of an error, or the name of a class without a verdict."""
    names = {kind: name for name, kind in VERDICTS.items() if kind is not None}
    return names.get(type(error), type(error).__name__)


def defects(entries: list[CorpusEntry]) -> list[str]:
    """Return the rules that entries violate."""
    found = []
    names = [each.name for each in entries]
    for each in entries:
        rules = {
            "its name is not unique": names.count(each.name) == 1,
            "its source is no URL": each.source.startswith("https://"),
            "its verdict is unknown": each.verdict in VERDICTS,
            "its kind is unknown": each.kind in KINDS,
            "its behaviour has no scene": each.kind != "behaviour" or bool(each.fake),
            "it names no next step": each.verdict not in _FOR_PEOPLE
            or bool(each.says)
            or each.kind == "behaviour",
        }
        found += [f"{each.name}: {rule}" for rule, holds in rules.items() if not holds]
    return found


def _entry(raw: dict[str, Any]) -> CorpusEntry:
    known = CorpusEntry.__dataclass_fields__.keys() - {"more", "says"}
    says = raw.pop("says", ())
    return CorpusEntry(
        says=(says,) if isinstance(says, str) else tuple(says),
        more={key: value for key, value in raw.items() if key not in known},
        **{key: value for key, value in raw.items() if key in known},
    )
