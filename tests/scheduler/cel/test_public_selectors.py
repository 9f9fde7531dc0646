"""Selectors as the guides of public DRA drivers write them decide as they do in Kubernetes."""

from dataclasses import dataclass

import pytest

from scheduler.cel import check_selector
from scheduler.cel.limits import FLEET_COST_MAX
from scheduler.model.devices import DeviceEntry
from tests.oracle.client import COST_MAX, Oracle
from tests.scheduler.cel.devices import device
from tests.scheduler.cel.evaluation import Evaluation, evaluated

NVIDIA = device(
    {
        "type": ("string", "gpu"),
        "uuid": ("string", "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"),
        "productName": ("string", "NVIDIA H100 80GB HBM3"),
        "brand": ("string", "Nvidia"),
        "architecture": ("string", "Hopper"),
        "cudaComputeCapability": ("version", "9.0.0"),
        "cudaDriverVersion": ("version", "12.8.0"),
        "driverVersion": ("version", "570.133.20"),
        "index": ("int", 3),
        "minor": ("int", 3),
        "addressingMode": ("string", "HMM"),
        "resource.kubernetes.io/pcieRoot": ("string", "pci0000:a7"),
        "resource.kubernetes.io/pciBusID": ("string", "0000:a8:00.0"),
    },
    {"memory": "81559Mi"},
    driver="gpu.nvidia.com",
)
MIG = device(
    {
        "type": ("string", "mig"),
        "parentUUID": ("string", "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"),
        "profile": ("string", "1g.10gb"),
        "productName": ("string", "NVIDIA A100-SXM4-80GB"),
        "cudaComputeCapability": ("version", "8.0.0"),
        "parentIndex": ("int", 0),
    },
    {"memory": "9728Mi", "multiprocessors": "14", "copyEngines": "1", "encoders": "0"},
    driver="gpu.nvidia.com",
)
AMD = device(
    {
        "type": ("string", "amdgpu"),
        "family": ("string", "AI"),
        "productName": ("string", "AMD_Instinct_MI300X_OAM"),
        "driverVersion": ("version", "6.12.12"),
        "partitionProfile": ("string", "spx_nps1"),
        "deviceID": ("string", "7593503399425474021"),
        "cardIndex": ("int", 1),
        "renderIndex": ("int", 129),
        "numaNode": ("int", 0),
        "resource.kubernetes.io/pcieRoot": ("string", "pci0000:15"),
    },
    {"memory": "196592Mi", "computeUnits": "304", "simdUnits": "1216"},
    driver="gpu.amd.com",
)
INTEL = device(
    {
        "model": ("string", "B580"),
        "family": ("string", "Arc"),
        "driver": ("string", "xe"),
        "pciId": ("string", "0xe20b"),
        "pciAddress": ("string", "0000:03:00.0"),
        "sriov": ("bool", False),
        "healthy": ("bool", True),
    },
    {"memory": "12216Mi", "millicores": "1k"},
    driver="gpu.intel.com",
)
TPU = device(
    {
        "tpuGen": ("string", "v6e"),
        "accelerator": ("string", "tpu-v6e-slice"),
        "topology": ("string", "2x4"),
        "index": ("int", 0),
    },
    {"hbm": "32Gi"},
    driver="tpu.google.com",
)
NIC = device(
    {
        "dra.net/ifName": ("string", "eth2"),
        "dra.net/rdma": ("bool", True),
        "dra.net/rdmaDevice": ("string", "mlx5_0"),
        "dra.net/virtual": ("bool", False),
        "dra.net/ipv4": ("string", "10.128.0.17/24"),
        "dra.net/ipv6": ("string", "2001:db8:1::17/64"),
        "dra.net/mtu": ("int", 8896),
        "dra.net/numaNode": ("int", 1),
        "dra.net/encapsulation": ("string", "ether"),
        "dra.net/state": ("string", "up"),
        "dra.net/pciVendor": ("string", "Mellanox Technologies"),
        "dra.net/sriov": ("bool", True),
        "dra.net/sriovVfs": ("int", 8),
        "dra.net/gateway": ("string", "https://fabric.example.com:8443/v1?rail=2"),
        "resource.kubernetes.io/pcieRoot": ("string", "pci0000:a7"),
    },
    driver="dra.net",
)
DEVICES = {
    "nvidia": NVIDIA,
    "mig": MIG,
    "amd": AMD,
    "intel": INTEL,
    "tpu": TPU,
    "nic": NIC,
}


@dataclass(frozen=True)
class Case:
    """A selector, the devices that it matches, and the devices for which it fails."""

    selector: str
    matches: str
    fails: str = ""


def _of(domain: str, *rows: tuple[str, str, str]) -> list[Case]:
    """Write out `@` and `#` as the attributes and the capacity of a domain."""
    attributes = f'device.attributes["{domain}"]'
    capacity = f'device.capacity["{domain}"]'
    return [
        Case(text.replace("@", attributes).replace("#", capacity), matches, fails)
        for text, matches, fails in rows
    ]


_REST_OF_NVIDIA = "amd intel tpu nic"
_REST_OF_AMD = "nvidia mig intel tpu nic"
_REST_OF_INTEL = "nvidia mig amd tpu nic"
_REST_OF_TPU = "nvidia mig amd intel nic"
_REST_OF_NICS = "nvidia mig amd intel tpu"

NVIDIA_CASES = _of(
    "gpu.nvidia.com",
    ('device.driver == "gpu.nvidia.com" && @.type == "gpu"', "nvidia", ""),
    ("device.driver == 'gpu.nvidia.com' && @.type == 'mig'", "mig", ""),
    ("@.productName.lowerAscii().matches('^.*a100.*$')", "mig", _REST_OF_NVIDIA),
    ('has(@.productName) && @.productName.contains("H100")', "nvidia", ""),
    ('@.productName.startsWith("NVIDIA ")', "nvidia mig", _REST_OF_NVIDIA),
    ('#.memory.compareTo(quantity("40Gi")) >= 0', "nvidia", _REST_OF_NVIDIA),
    (
        'has(#.memory) && #.memory.isGreaterThan(quantity("80000Mi"))',
        "nvidia",
        "",
    ),
    (
        '#.?memory.optMap(m, m.compareTo(quantity("8Gi")) >= 0).orValue(false)',
        "nvidia mig",
        "",
    ),
    (
        '@.cudaComputeCapability.compareTo(semver("9.0.0")) >= 0',
        "nvidia",
        _REST_OF_NVIDIA,
    ),
    (
        (
            '@.?cudaComputeCapability.orValue(semver("0.0.0"))'
            '.isGreaterThan(semver("8.9.0"))'
        ),
        "nvidia",
        "",
    ),
    ("@.cudaComputeCapability.major() >= 9", "nvidia", _REST_OF_NVIDIA),
    (
        '@.driverVersion.isGreaterThan(semver("550.0.0"))',
        "nvidia",
        f"mig {_REST_OF_NVIDIA}",
    ),
    (
        '"driverVersion" in @ && @.driverVersion.isLessThan(semver("580", true))',
        "nvidia",
        "",
    ),
    ('@.?profile.orValue("none") in ["1g.10gb", "2g.20gb"]', "mig", ""),
    ('"profile" in @ && @.profile.split(".").size() == 2', "mig", ""),
    ('has(@.profile) && int(@.profile.find("^[0-9]+")) <= 2', "mig", ""),
    ('@.?architecture.optMap(a, a == "Hopper").orValue(false)', "nvidia", ""),
    ('@.?architecture.orValue("?") in ["Hopper", "Blackwell"]', "nvidia", ""),
    ("@.?index.orValue(-1) in [0, 1, 2, 3]", "nvidia", ""),
    ("@.?index.orValue(@.?parentIndex.orValue(9)) < 4", "nvidia mig", ""),
    ('@.?uuid.or(@.?parentUUID).orValue("").startsWith("GPU-4cf8")', "nvidia mig", ""),
    ('#.?multiprocessors.orValue(quantity("0")).asInteger() > 10', "mig", ""),
    (
        "@.uuid == 'GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c'",
        "nvidia",
        f"mig {_REST_OF_NVIDIA}",
    ),
    ('@.exists(k, k.endsWith("UUID"))', "mig", ""),
    ('@.exists(k, v, k == "type" && v == "gpu")', "nvidia", ""),
    ('@.transformList(k, v, k.startsWith("cuda"), k).size() == 2', "nvidia", ""),
    (
        (
            'cel.bind(gpu, @, gpu.?type.orValue("") == "gpu" '
            "&& gpu.?minor.orValue(0) % 2 == 1)"
        ),
        "nvidia",
        "",
    ),
    (
        (
            "cel.bind(name, @.productName, "
            'name.matches("(?i)h100|h200|b200") && !name.contains("PCIe"))'
        ),
        "nvidia",
        _REST_OF_NVIDIA,
    ),
    ('["Hopper", "Ada"].exists(a, @.?architecture.orValue("") == a)', "nvidia", ""),
    ('sets.contains(["gpu", "mig"], [@.?type.orValue("")])', "nvidia mig", ""),
    (
        (
            'device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") '
            '== "pci0000:a7"'
        ),
        "nvidia nic",
        "",
    ),
    (
        'device.attributes["resource.kubernetes.io"][?"pciBusID"].hasValue()',
        "nvidia",
        "",
    ),
)
AMD_CASES = _of(
    "gpu.amd.com",
    ('@.type == "amdgpu"', "amd", _REST_OF_AMD),
    ('@.productName.contains("MI300X")', "amd", _REST_OF_AMD),
    ('@.?partitionProfile.orValue("") == "spx_nps1"', "amd", ""),
    ('@.partitionProfile.split("_")[0] == "spx"', "amd", _REST_OF_AMD),
    ('@.driverVersion.isGreaterThan(semver("6.8.0"))', "amd", _REST_OF_AMD),
    ('#.memory.isGreaterThan(quantity("128Gi"))', "amd", _REST_OF_AMD),
    ('#.computeUnits == quantity("304")', "amd", _REST_OF_AMD),
    (
        '#.computeUnits.sub(quantity("4")).asInteger() == 300',
        "amd",
        _REST_OF_AMD,
    ),
    ("@.numaNode == 0 || @.numaNode == 1", "amd", _REST_OF_AMD),
    ("@.?numaNode.orValue(0) == 0 && device.driver == 'gpu.amd.com'", "amd", ""),
    (
        '@.productName.replace("_", " ").upperAscii() == "AMD INSTINCT MI300X OAM"',
        "amd",
        _REST_OF_AMD,
    ),
    ("@.renderIndex - @.cardIndex == 128", "amd", _REST_OF_AMD),
)
INTEL_CASES = _of(
    "gpu.intel.com",
    ('@.model == "B580"', "intel", _REST_OF_INTEL),
    ('@.family in ["Arc", "Data Center Max"]', "intel", _REST_OF_INTEL),
    ('@.?driver.orValue("i915") == "xe"', "intel", ""),
    ("!@.sriov && @.healthy", "intel", _REST_OF_INTEL),
    ('@.pciAddress in ["0000:03:00.0", "0000:04:00.0"]', "intel", _REST_OF_INTEL),
    ('@.pciId.matches("^0xe2[0-9a-f]{2}$")', "intel", _REST_OF_INTEL),
    ('#.millicores.compareTo(quantity("500")) > 0', "intel", _REST_OF_INTEL),
    ("#.memory.asApproximateFloat() / 1024.0 > 1.0e6", "intel", _REST_OF_INTEL),
    ("has(@.sriov) && @.sriov == false", "intel", ""),
)
TPU_CASES = _of(
    "tpu.google.com",
    ('@.tpuGen == "v6e"', "tpu", _REST_OF_TPU),
    ('@.?tpuGen.orValue("") in ["v5litepod", "v6e"]', "tpu", ""),
    ('@.?accelerator.orValue("").endsWith("-slice")', "tpu", ""),
    (
        'cel.bind(sides, @.topology.split("x"), int(sides[0]) * int(sides[1]) == 8)',
        "tpu",
        _REST_OF_TPU,
    ),
    (
        'has(@.topology) && @.topology.split("x").map(n, int(n)).sum() == 6',
        "tpu",
        "",
    ),
    ('@.topology.split("x").map(n, int(n)).sort() == [2, 4]', "tpu", _REST_OF_TPU),
    ('#.hbm.isGreaterThan(quantity("16Gi"))', "tpu", _REST_OF_TPU),
)
NETWORK_CASES = _of(
    "dra.net",
    ("@.rdma == true", "nic", _REST_OF_NICS),
    ('has(@.rdma) && @.rdma && @.?state.orValue("down") == "up"', "nic", ""),
    ('has(@.ifName) && @.ifName.matches("^eth[0-9]+$")', "nic", ""),
    ('@.?ipv4.orValue("").startsWith("10.128.0.")', "nic", ""),
    ('cidr("10.128.0.0/16").containsCIDR(@.ipv4)', "nic", _REST_OF_NICS),
    (
        'has(@.ipv4) && cidr("10.0.0.0/8").containsIP(cidr(@.ipv4).ip())',
        "nic",
        "",
    ),
    ("has(@.ipv6) && isCIDR(@.ipv6) && cidr(@.ipv6).ip().family() == 6", "nic", ""),
    ("cidr(@.ipv6).prefixLength() == 64", "nic", _REST_OF_NICS),
    ("@.mtu >= 8000 && @.sriovVfs > 0", "nic", _REST_OF_NICS),
    ('"pciVendor" in @ && @.pciVendor.lowerAscii().startsWith("mell")', "nic", ""),
    ("url(@.gateway).getPort() == '8443'", "nic", _REST_OF_NICS),
    ('url(@.gateway).getQuery()["rail"] == ["2"]', "nic", _REST_OF_NICS),
    (
        '"%s-%d".format([string(@.ifName), int(@.numaNode)]) == "eth2-1"',
        "nic",
        _REST_OF_NICS,
    ),
    (
        "has(@.ifName) && !format.dns1123Label().validate(@.ifName).hasValue()",
        "nic",
        "",
    ),
    (
        '["ifName", "rdma", "mtu"].all(name, name in @)',
        "nic",
        "",
    ),
    ("device.attributes.exists(d, ids, d == 'dra.net' && 'rdma' in ids)", "nic", ""),
    ("!device.allowMultipleAllocations && @.?sriov.orValue(false)", "nic", ""),
)
# Kubernetes does not know how long the content of an optional may be, so functions that read a
# text exceed every limit.
UNBOUNDED = [
    'device.attributes["gpu.nvidia.com"].?productName.orValue("").contains("H100")',
    'device.attributes["gpu.nvidia.com"].?architecture == optional.of("Hopper")',
    'device.attributes["dra.net"].?ifName.orValue("").matches("^eth[0-9]+$")',
    'isCIDR(device.attributes["dra.net"].?ipv4.orValue(""))',
]
CASES = [*NVIDIA_CASES, *AMD_CASES, *INTEL_CASES, *TPU_CASES, *NETWORK_CASES]


def _expected(case: Case, name: str) -> bool | str:
    return "error" if name in case.fails.split() else name in case.matches.split()


def _in_kubernetes(oracle: Oracle, text: str, entry: DeviceEntry) -> Evaluation:
    answer = oracle.select(text, [entry])
    [outcome] = answer["devices"]
    if outcome.get("error"):
        return Evaluation("error", answer["max_cost"])
    return Evaluation(outcome["matched"], answer["max_cost"], outcome["cost"])


def test_there_are_many_selectors() -> None:
    assert len({case.selector for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.selector[:80])
def test_a_selector_matches_the_devices_that_it_describes(case: Case) -> None:
    for name, entry in DEVICES.items():
        found = evaluated(case.selector, entry)
        assert found.outcome == _expected(case, name), name
        assert found.estimate is not None
        assert found.estimate < FLEET_COST_MAX
        # Kubernetes itself estimates startsWith by the prefix, and counts the text.
        if ".startsWith(" not in case.selector:
            assert (found.cost or 0) <= found.estimate, name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.selector[:80])
def test_a_selector_has_the_outcome_estimate_and_cost_of_kubernetes(
    case: Case, oracle: Oracle
) -> None:
    # Loops over attributes end early in an order that Go draws at random.
    any_order = ".exists(" in case.selector
    for name, entry in DEVICES.items():
        found = evaluated(case.selector, entry)
        kubernetes = _in_kubernetes(oracle, case.selector, entry)
        if any_order:
            assert (found.outcome, found.estimate) == (
                kubernetes.outcome,
                kubernetes.estimate,
            ), name
        else:
            assert found == kubernetes, name


@pytest.mark.parametrize("selector", UNBOUNDED)
def test_functions_that_read_the_text_of_an_optional_are_refused_by_their_cost(
    selector: str, oracle: Oracle
) -> None:
    assert oracle.ask({"selector": selector})["max_cost"] > COST_MAX
    assert "use has() instead" in (check_selector(selector) or "")
