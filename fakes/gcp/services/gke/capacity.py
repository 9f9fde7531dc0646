"""The capacity of the cloud.

It has regions with their zones, machine types, accelerators, quotas, and the stock of
machines per zone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

REGIONS: Mapping[str, tuple[str, ...]] = {
    "europe-west4": ("europe-west4-a", "europe-west4-b", "europe-west4-c"),
    "europe-west1": ("europe-west1-b", "europe-west1-c", "europe-west1-d"),
    "us-central1": ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"),
    "us-east4": ("us-east4-a", "us-east4-b", "us-east4-c"),
}
"""The zones of each region. Their letters differ, as at Google."""

VERSIONS = (
    "1.36.2-gke.1000",
    "1.36.1-gke.2000",
    "1.35.4-gke.1500",
    "1.35.2-gke.1000",
    "1.34.6-gke.1200",
    "1.33.9-gke.1000",
)
"""The versions that channel REGULAR offers, newest first."""


@dataclass(frozen=True)
class MachineType:
    """One machine type.

    `gpus` are the accelerator type and its possible counts; empty for none.
    """

    cpus: int
    memory_mib: int
    gpu: str = ""
    gpu_counts: tuple[int, ...] = ()


MACHINES: Mapping[str, MachineType] = {
    "e2-standard-4": MachineType(4, 16384),
    "e2-standard-8": MachineType(8, 32768),
    "e2-medium": MachineType(2, 4096),
    "n1-standard-8": MachineType(8, 30720, "nvidia-tesla-t4", (1, 2, 4)),
    "g2-standard-4": MachineType(4, 16384, "nvidia-l4", (1,)),
    "g2-standard-8": MachineType(8, 32768, "nvidia-l4", (1,)),
    "g2-standard-12": MachineType(12, 49152, "nvidia-l4", (1,)),
    "g2-standard-16": MachineType(16, 65536, "nvidia-l4", (1,)),
    "g2-standard-24": MachineType(24, 98304, "nvidia-l4", (2,)),
    "g2-standard-48": MachineType(48, 196608, "nvidia-l4", (4,)),
    "g2-standard-96": MachineType(96, 393216, "nvidia-l4", (8,)),
    "a2-highgpu-1g": MachineType(12, 87040, "nvidia-tesla-a100", (1,)),
    "a2-highgpu-8g": MachineType(96, 696320, "nvidia-tesla-a100", (8,)),
    "a2-ultragpu-8g": MachineType(96, 1392640, "nvidia-a100-80gb", (8,)),
    "a3-highgpu-8g": MachineType(208, 1916928, "nvidia-h100-80gb", (8,)),
    "a3-megagpu-8g": MachineType(208, 1916928, "nvidia-h100-mega-80gb", (8,)),
    "a3-ultragpu-8g": MachineType(224, 3022848, "nvidia-h200-141gb", (8,)),
    "a4-highgpu-8g": MachineType(224, 4063232, "nvidia-b200", (8,)),
}
"""The machine types of every zone."""

METRICS: Mapping[str, str] = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
    "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS",
    "nvidia-h200-141gb": "NVIDIA_H200_GPUS",
    "nvidia-b200": "NVIDIA_B200_GPUS",
}
"""The regional quota of each accelerator."""

ALL_GPUS, ADDRESSES, NETWORKS = "GPUS_ALL_REGIONS", "IN_USE_ADDRESSES", "NETWORKS"
_PROJECT_QUOTAS = {ALL_GPUS: 1024, NETWORKS: 15}


class GcpCapacity:
    """Quotas and stocks, which a test may change. The rest is fixed."""

    def __init__(self) -> None:
        self._regional: dict[tuple[str, str], int] = {}
        self._project: dict[str, int] = dict(_PROJECT_QUOTAS)
        self._stock: dict[tuple[str, str], int] = {}
        self._absent: set[tuple[str, str]] = set()

    def limit(self, metric: str, region: str = "") -> int:
        """Return the limit of a quota: of a region, or of the project without one."""
        return (
            self._regional.get((metric, region), 512)
            if region
            else self._project.get(metric, 1024)
        )

    def set_limit(self, metric: str, limit: int, region: str = "") -> None:
        """Change the limit of a quota."""
        if region:
            self._regional[metric, region] = limit
        else:
            self._project[metric] = limit

    def stock(self, zone: str, machine: str) -> int | None:
        """Return the stock of a machine type in a zone, or None for enough."""
        return self._stock.get((zone, machine))

    def set_stock(self, zone: str, machine: str, machines: int | None) -> None:
        """Change the stock of a machine type in a zone."""
        if machines is None:
            self._stock.pop((zone, machine), None)
        else:
            self._stock[zone, machine] = machines

    def remove_machine(self, zone: str, machine: str) -> None:
        """Stop offering a machine type in a zone."""
        self._absent.add((zone, machine))

    def offers(self, zone: str, machine: str) -> bool:
        """Return whether a zone offers a machine type."""
        return machine in MACHINES and (zone, machine) not in self._absent

    def project_metrics(self) -> list[str]:
        """Return the names of the project's quotas."""
        return sorted(self._project)


def region_of(zone: str) -> str:
    """Return the region of a zone."""
    return zone.rpartition("-")[0]


def zones_of(location: str) -> tuple[str, ...]:
    """Return the zones of a region, or of a zone itself.

    A location that does not exist has none.
    """
    if location in REGIONS:
        return REGIONS[location]
    return (location,) if location in REGIONS.get(region_of(location), ()) else ()
