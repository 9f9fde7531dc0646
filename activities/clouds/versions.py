"""Versions of Kubernetes that a cloud is asked for."""

import re
from collections.abc import Iterator

from activities.clouds.desired import INVALID_INPUT, Problem

# From here on DRA is generally available.
_DRA_MINOR = 34

_VERSION = re.compile(r"1\.([0-9]{1,3})(\.[0-9]{1,3}(-gke\.[0-9]{1,9})?)?")


def version_problems(version: str, *, minor_only: bool) -> Iterator[Problem]:
    """Refuse what is no version, and a full one where the cloud takes only a minor."""
    found = _VERSION.fullmatch(version)
    if found is None or (minor_only and found[2]):
        yield Problem(INVALID_INPUT, "", f'kubernetesVersion "{version}": write a minor version, such as "1.36"')


def version_warnings(version: str) -> Iterator[Problem]:
    """Warn of versions without DRA."""
    found = _VERSION.fullmatch(version)
    if found is not None and int(found[1]) < _DRA_MINOR:
        yield Problem(
            "OldKubernetes", "", f"Kubernetes {version} has no stable DRA, by which GPUs are given to pods; use 1.{_DRA_MINOR} or newer"
        )


def minor_of(version: str) -> int:
    """Give the number of the minor version; 0 for what is no version."""
    found = _VERSION.match(version)
    return int(found[1]) if found else 0


def next_minor(version: str) -> str:
    """Give the minor version after this one, such as `1.36` for `1.35.2`."""
    return f"1.{minor_of(version) + 1}"
