"""List prices of the parts of a cluster at a cloud, in US dollars.

Each price names a page and the date of its statement. A price that is not here is
unknown: prices differ between regions, so none is derived from another region. They are
on-demand prices without taxes, discounts and free tiers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

HOURS_PER_MONTH = 730
"""The hours of a month with which the calculators of both clouds count."""

CONTROL_PLANE = "control plane"
NAT_GATEWAY = "NAT gateway"
ADDRESS = "public address"
LOAD_BALANCER = "load balancer"
FILE_STORAGE = "file storage"

ANY_REGION = ""
_NOT_ANY = ("cn-", "us-gov-")


@dataclass(frozen=True)
class ListPrice:
    """A price per hour, or of file storage per GiB and month.

    `dated` is the date that the page states, or the day on which the page was read.
    """

    usd: Decimal
    source: str
    dated: str


def price_of(provider: str, item: str, region: str) -> ListPrice | None:
    """Return the list price of an item or machine type, or None if it is unknown.

    Prices for any region do not apply to China and GovCloud.
    """
    found = _PRICES.get((provider, item, region))
    if found is None and not region.startswith(_NOT_ANY):
        found = _PRICES.get((provider, item, ANY_REGION))
    return found


_EKS = "https://aws.amazon.com/blogs/containers/amazon-eks-extended-support-for-kubernetes-versions-pricing/"
_IPV4 = "https://aws.amazon.com/blogs/aws/new-aws-public-ipv4-address-charge-public-ip-insights/"
_NAT = "https://cloudburn.io/blog/aws-nat-gateway-pricing"
_ELB = "https://aws.amazon.com/elasticloadbalancing/pricing/"
_EFS = "https://cloudburn.io/blog/amazon-efs-pricing"
_EC2 = "https://github.com/aws/karpenter-provider-aws/blob/v1.15.2/pkg/providers/pricing/zz_generated.pricing_aws.go"
_GKE = "https://cloud.google.com/kubernetes-engine/pricing"
_FILESTORE = "https://cloud.google.com/filestore/docs/service-tiers"
_FORWARDING = "https://cloud.google.com/load-balancing/pricing"
_GCE = "https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator/blob/main/pricing.yml"


def _table(
    provider: str,
    region: str,
    source: str,
    dated: str,
    prices: Iterable[tuple[str, str]],
) -> dict[tuple[str, str, str], ListPrice]:
    return {
        (provider, item, region): ListPrice(Decimal(usd), source, dated)
        for item, usd in prices
    }


_PRICES: Mapping[tuple[str, str, str], ListPrice] = {
    **_table("EKS", ANY_REGION, _EKS, "2024-04-01", [(CONTROL_PLANE, "0.10")]),
    **_table("EKS", ANY_REGION, _IPV4, "2024-02-01", [(ADDRESS, "0.005")]),
    **_table("EKS", "us-east-1", _NAT, "2026-02-24", [(NAT_GATEWAY, "0.045")]),
    **_table("EKS", "us-east-2", _NAT, "2026-02-24", [(NAT_GATEWAY, "0.045")]),
    # The Service of the gateway gets a Classic Load Balancer.
    **_table("EKS", "us-east-1", _ELB, "2026-11-30", [(LOAD_BALANCER, "0.025")]),
    **_table("EKS", "us-east-1", _EFS, "2026-03-03", [(FILE_STORAGE, "0.30")]),
    **_table(
        "EKS",
        "us-east-1",
        _EC2,
        "2026-07-20",
        [
            ("m6i.xlarge", "0.192"),
            ("g4dn.xlarge", "0.526"),
            ("g4dn.2xlarge", "0.752"),
            ("g4dn.4xlarge", "1.204"),
            ("g4dn.8xlarge", "2.176"),
            ("g4dn.12xlarge", "3.912"),
            ("g4dn.16xlarge", "4.352"),
            ("g5.xlarge", "1.006"),
            ("g5.2xlarge", "1.212"),
            ("g5.4xlarge", "1.624"),
            ("g5.8xlarge", "2.448"),
            ("g5.12xlarge", "5.672"),
            ("g5.16xlarge", "4.096"),
            ("g5.24xlarge", "8.144"),
            ("g5.48xlarge", "16.288"),
            ("g6.xlarge", "0.8048"),
            ("g6.2xlarge", "0.9776"),
            ("g6.4xlarge", "1.3232"),
            ("g6.8xlarge", "2.0144"),
            ("g6.12xlarge", "4.6016"),
            ("g6.16xlarge", "3.3968"),
            ("g6.24xlarge", "6.6752"),
            ("g6.48xlarge", "13.3504"),
            ("g6e.xlarge", "1.861"),
            ("g6e.2xlarge", "2.24208"),
            ("g6e.4xlarge", "3.00424"),
            ("g6e.8xlarge", "4.52856"),
            ("g6e.12xlarge", "10.49264"),
            ("g6e.16xlarge", "7.57719"),
            ("g6e.24xlarge", "15.06559"),
            ("g6e.48xlarge", "30.13118"),
            ("p4d.24xlarge", "21.957642"),
            ("p4de.24xlarge", "27.44705"),
            ("p5.4xlarge", "6.88"),
            ("p5.48xlarge", "55.04"),
            ("p5en.48xlarge", "63.296"),
        ],
    ),
    **_table("GKE", ANY_REGION, _GKE, "2026-11-30", [(CONTROL_PLANE, "0.10")]),
    # The tier `enterprise`, from which the StorageClass of caches creates instances.
    **_table("GKE", "us-central1", _FILESTORE, "2026-11-30", [(FILE_STORAGE, "0.45")]),
    # Each of the first five forwarding rules of a project.
    **_table(
        "GKE", "us-central1", _FORWARDING, "2026-11-30", [(LOAD_BALANCER, "0.025")]
    ),
    **_table(
        "GKE",
        "us-central1",
        _GCE,
        "2025-03-06",
        [
            ("e2-standard-4", "0.13402284"),
            ("g2-standard-8", "0.853624271"),
            ("g2-standard-12", "1.000416287"),
            ("g2-standard-16", "1.147208303"),
            ("a2-highgpu-1g", "3.673385"),
            ("a2-highgpu-2g", "7.34677"),
        ],
    ),
    **_table(
        "GKE",
        "europe-west4",
        _GCE,
        "2025-03-06",
        [
            ("e2-standard-4", "0.14754408"),
            ("g2-standard-8", "0.897201806"),
            ("g2-standard-12", "1.051487566"),
            ("g2-standard-16", "1.205773326"),
            ("a2-highgpu-1g", "3.747972"),
            ("a2-highgpu-2g", "7.495944"),
        ],
    ),
}
