"""The partitions of AWS. Each has its own ARN prefix and DNS suffix."""

from typing import NamedTuple


class _Partition(NamedTuple):
    name: str
    dns_suffix: str


_AWS = _Partition("aws", "amazonaws.com")
# The suffixes by the prefix of their regions.
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
    """Return the partition of a region, the part of an ARN after `arn`."""
    return _of(region).name


def dns_suffix_of(region: str) -> str:
    """Return the DNS suffix of AWS's hosts in a region."""
    return _of(region).dns_suffix


def node_principal_of(region: str) -> str:
    """Return the service that the role of nodes trusts.

    Only EC2 has another name in some partitions. eksctl has the same names
    (https://github.com/eksctl-io/eksctl/blob/main/pkg/apis/eksctl.io/v1alpha5/partitions.go).
    """
    suffix = _AWS.dns_suffix
    if partition_of(region) in ("aws-cn", "aws-iso", "aws-iso-b"):
        suffix = dns_suffix_of(region)
    return f"ec2.{suffix}"


def _of(region: str) -> _Partition:
    for prefix, partition in _OTHERS.items():
        if region.startswith(prefix):
            return partition
    return _AWS
