"""Checks of requested Kubernetes versions."""

import re
from collections.abc import Iterator

from activities.clouds.desired.plan import INVALID_INPUT, PlanProblem

# DRA is generally available from this minor version on.
_DRA_MINOR = 34

_VERSION = re.compile(r"1\.([0-9]{1,3})(\.[0-9]{1,3}(-gke\.[0-9]{1,9})?)?")


def version_problems(version: str, *, minor_only: bool) -> Iterator[PlanProblem]:
    """Reject an invalid version, and a patch version where only minors are accepted."""
    found = _VERSION.fullmatch(version)
    if found is None or (minor_only and found[2]):
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'kubernetesVersion "{version}" is invalid: use a minor version, such as "1.36"',
        )


def version_warnings(version: str) -> Iterator[PlanProblem]:
    """Warn of versions without DRA."""
    found = _VERSION.fullmatch(version)
    if found is not None and int(found[1]) < _DRA_MINOR:
        yield PlanProblem(
            "OldKubernetes",
            "",
            f"Kubernetes {version} has no stable DRA, which assigns GPUs to pods; use "
            f"1.{_DRA_MINOR} or newer",
        )


def minor_of(version: str) -> int:
    """Return the number of the minor version, or 0 if the version is invalid."""
    found = _VERSION.match(version)
    return int(found[1]) if found else 0


def next_minor(version: str) -> str:
    """Return the next minor version, such as `1.36` for `1.35.2`."""
    return f"1.{minor_of(version) + 1}"
