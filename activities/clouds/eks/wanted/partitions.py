"""The parts of AWS that have their own accounts: the names of their resources begin, and those of their hosts end, differently."""

from typing import NamedTuple


class _Partition(NamedTuple):
    name: str
    dns_suffix: str


_AWS = _Partition("aws", "amazonaws.com")
# By how the names of their regions begin.
_OTHERS = {
    "cn-": _Partition("aws-cn", "amazonaws.com.cn"),
    "us-gov-": _Partition("aws-us-gov", "amazonaws.com"),
    "us-iso-": _Partition("aws-iso", "c2s.ic.gov"),
    "us-isob-": _Partition("aws-iso-b", "sc2s.sgov.gov"),
    "us-isof-": _Partition("aws-iso-f", "csp.hci.ic.gov"),
    "eu-isoe-": _Partition("aws-iso-e", "cloud.adc-e.uk"),
    "eusc-": _Partition("aws-eusc", "amazonaws.eu"),
}


def partition_of(region: str) -> str:
    """Give the partition of a region: the first part of every ARN after `arn`."""
    return _of(region).name


def dns_suffix_of(region: str) -> str:
    """Give how the names of AWS's hosts in a region end."""
    return _of(region).dns_suffix


def _of(region: str) -> _Partition:
    return next((partition for prefix, partition in _OTHERS.items() if region.startswith(prefix)), _AWS)
