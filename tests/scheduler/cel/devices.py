"""Devices for the tests of selectors."""

from __future__ import annotations

from random import Random

from scheduler.model.devices import DeviceEntry

NVIDIA = "gpu.nvidia.com"


def device(
    attributes: dict[str, tuple[str, object]] | None = None,
    capacity: dict[str, str] | None = None,
    *,
    driver: str = NVIDIA,
    name: str = "gpu",
) -> DeviceEntry:
    """Return a device with attributes (name to type and value) and capacity."""
    return DeviceEntry(
        name=name,
        claim="DRA",
        driver=driver,
        device_class="gpus",
        count=8,
        attributes=tuple(
            sorted(
                (key, kind, value) for key, (kind, value) in (attributes or {}).items()
            )
        ),
        capacity=tuple(sorted((capacity or {}).items())),
    )


# A device with one attribute of each type.
HOPPER = device(
    {
        "architecture": ("string", "Hopper"),
        "cc": ("version", "9.0.0"),
        "idx": ("int", 3),
        "mig": ("bool", True),
        "ecc": ("bool", False),
        "resource.kubernetes.io/pcieRoot": ("string", "pci0"),
    },
    {"memory": "141Gi"},
)

DEVICES = {
    "hopper": HOPPER,
    "other driver": device(
        {"architecture": ("string", "Hopper"), "gpu.nvidia.com/idx": ("int", 9)},
        {"memory": "80Gi"},
        driver="gpu.amd.com",
    ),
    "bare": device(driver="nic.example.com"),
    "two-part version": device({"cc": ("version", "9.0"), "idx": ("int", 3)}),
    "strange": device(
        {
            "architecture": ("string", "höpper\u00a0"),
            "cc": ("version", "9.0.0-rc.1+build.5"),
            "idx": ("int", -(2**63)),
            "mig": ("bool", False),
            "a/b/c": ("string", ""),
        },
        {"memory": "1.5Gi", "slices": "7", "other.com/bandwidth": "500m"},
    ),
}


def random_devices(seed: int, count: int) -> list[DeviceEntry]:
    """Return devices with the names that generated selectors read, some missing or of
    another type.
    """
    random = Random(seed)  # noqa: S311 - test data
    values: list[tuple[str, object]] = [
        *(
            ("string", text)
            for text in ("Hopper", "Ada", "9.0.0", "3", "", "1Gi", "gpu.nvidia.com")
        ),
        *(("version", text) for text in ("9.0.0", "8.9.0", "9.0.0-rc.1", "10.2.3+b")),
        *(("bool", flag) for flag in (True, False)),
        *(("int", number) for number in (0, 1, 3, -5, 2**63 - 1)),
    ]
    usual: dict[str, tuple[str, object]] = {
        "architecture": ("string", "Hopper"),
        "cc": ("version", "9.0.0"),
        "idx": ("int", 3),
        "mig": ("bool", True),
    }
    made = []
    for _ in range(count):
        attributes: dict[str, tuple[str, object]] = {}
        for name in ("architecture", "cc", "idx", "mig", "other.com/model"):
            roll = random.random()
            if roll < 0.7 and name in usual:
                attributes[name] = usual[name]
            elif roll < 0.9:
                attributes[name] = random.choice(values)
        capacity = {
            name: random.choice(
                ("141Gi", "80Gi", "1.5Gi", "1000m", "7Ei", "0", "80G", "1e3")
            )
            for name in ("memory", "slices")
            if random.random() < 0.8
        }
        made.append(
            device(
                attributes,
                capacity,
                driver=random.choice((NVIDIA, NVIDIA, "gpu.amd.com")),
            )
        )
    return made
