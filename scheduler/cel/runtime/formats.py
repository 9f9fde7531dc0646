"""The named formats of Kubernetes, such as `format.dns1123Label()`, and `validate`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, ClassVar

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime import regexes
from scheduler.cel.runtime.urls import UrlError, check_request_url
from scheduler.cel.runtime.values import NONE, Opaque, Optional, no_overload

Check = Callable[[str], list[str]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_NAME})?"
_UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_BASE64 = (
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
)
_CLOCK = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")
_LEAP_YEAR = 2000

_MIXED = (
    "alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
    "or '-', and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
    "characters, '-' or '.', and must start and end with an alphanumeric character"
)
_DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_NAME_RULE = f"must consist of {_MIXED}"
_VALUE_RULE = f"a valid label must be an empty string or consist of {_MIXED}"
_NAME_EXAMPLES = ("MyName", "my.name", "123-abc")
_LABEL_BYTES_MAX = 63
_SUBDOMAIN_BYTES_MAX = 253
_DATE_TIME_BYTES_MIN = 4


@dataclass(frozen=True, slots=True)
class NamedFormat(Opaque):
    """A named format.

    Attributes:
        name: its name in Kubernetes.
        pattern_size: characters of its pattern, by which the cost model counts.
        check: returns the problems of a text.

    """

    cel_type: ClassVar[str] = "kubernetes.NamedFormat"
    name: str
    pattern_size: int
    check: Check

    def same_as(self, other: Any) -> bool:
        return bool(self.name == other.name)


def _fits(text: str, pattern: str) -> bool:
    return regexes.matches(text, pattern) is True


def _pattern_problem(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _length_problems(text: str, most: int) -> list[str]:
    too_long = len(text.encode()) > most
    return [f"must be no more than {most} bytes"] if too_long else []


def _label(text: str) -> list[str]:
    problems = _length_problems(text, _LABEL_BYTES_MAX)
    if not _fits(text, f"^{_LABEL}$"):
        dotted = _fits(text, f"^{_SUBDOMAIN}$")
        shown = _pattern_problem(_LABEL_RULE, _LABEL, "my-name", "123-abc")
        problems.append("must not contain dots" if dotted else shown)
    return problems


def _subdomain(text: str) -> list[str]:
    problems = _length_problems(text, _SUBDOMAIN_BYTES_MAX)
    if not _fits(text, f"^{_SUBDOMAIN}$"):
        problems.append(_pattern_problem(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))
    return problems


def _dns_1035(text: str) -> list[str]:
    problems = _length_problems(text, _LABEL_BYTES_MAX)
    if not _fits(text, f"^{_DNS_1035}$"):
        shown = _pattern_problem(_DNS_1035_RULE, _DNS_1035, "my-name", "abc-123")
        problems.append(shown)
    return problems


def _qualified_name(text: str) -> list[str]:
    *prefixes, name = text.split("/")
    rule = _pattern_problem(_NAME_RULE, _NAME, *_NAME_EXAMPLES)
    if len(prefixes) > 1:
        return [
            (
                f"a valid label key {rule} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            )
        ]
    problems = []
    for prefix in prefixes:
        found = _subdomain(prefix) if prefix else ["must be non-empty"]
        problems += [f"prefix part {problem}" for problem in found]
    if not name:
        problems.append("name part must be non-empty")
    too_long = _length_problems(name, _LABEL_BYTES_MAX)
    problems += [f"name part {problem}" for problem in too_long]
    if not _fits(name, f"^{_NAME}$"):
        problems.append(f"name part {rule}")
    return problems


def _label_value(text: str) -> list[str]:
    problems = _length_problems(text, _LABEL_BYTES_MAX)
    if not _fits(text, f"^{_VALUE}$"):
        shown = _pattern_problem(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345")
        problems.append(shown)
    return problems


def _prefix_of(check: Check) -> Check:
    """Return a check that allows a dash at the end, as Kubernetes' `generateName` does."""

    def checked(text: str) -> list[str]:
        if text.endswith("-") and len(text) > 1:
            text = f"{text[:-2]}a"
        return check(text)

    return checked


def _uri(text: str) -> list[str]:
    try:
        check_request_url(text)
    except UrlError as error:
        return [str(error)]
    return []


def _is_date(text: str) -> bool:
    found = _DATE.match(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    try:
        # The year 0 is a leap year that Python does not have.
        date(year or _LEAP_YEAR, month, day)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    if len(text.encode()) < _DATE_TIME_BYTES_MIN:
        return False
    day, *rest = text.lower().split("t")
    if not rest or not _is_date(day) or not _fits(rest[0], _CLOCK):
        return False
    hours, minutes, seconds = rest[0][:2], rest[0][3:5], rest[0][6:8]
    return hours <= "23" and minutes <= "59" and seconds <= "59"


def _problem_unless(test: Callable[[str], bool], problem: str) -> Check:
    return lambda text: [] if test(text) else [problem]


_uuid = _problem_unless(partial(_fits, pattern=_UUID), "does not match the UUID format")
_byte = _problem_unless(partial(_fits, pattern=_BASE64), "invalid base64")
_date = _problem_unless(_is_date, "invalid date")
_date_time = _problem_unless(_is_date_time, "invalid datetime")

FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", 30, _label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", 30, _dns_1035),
    "qualifiedName": NamedFormat("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", 30, _prefix_of(_label)),
    "dns1123SubdomainPrefix": NamedFormat(
        "DNS1123SubdomainPrefix", 60, _prefix_of(_subdomain)
    ),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", 30, _prefix_of(_dns_1035)),
    "labelValue": NamedFormat("LabelValue", 40, _label_value),
    "uri": NamedFormat("URI", 1103, _uri),
    "uuid": NamedFormat("uuid", len(_UUID), _uuid),
    "byte": NamedFormat("byte", 84, _byte),
    "date": NamedFormat("date", len(_CLOCK), _date),
    "datetime": NamedFormat("datetime", len(_CLOCK), _date_time),
}


def _validate(kind: Any, text: Any) -> Any:
    if type(kind) is not NamedFormat or type(text) is not str:
        return no_overload(kind, text)
    problems = kind.check(text)
    return Optional(problems) if problems else NONE


def _named(name: Any) -> Any:
    if type(name) is not str:
        return no_overload(name)
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _constant(value: NamedFormat) -> Callable[[], NamedFormat | EvalError]:
    return lambda: value


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "validate": _validate,
    "format.named": _named,
    **{f"format.{name}": _constant(value) for name, value in FORMATS.items()},
}
