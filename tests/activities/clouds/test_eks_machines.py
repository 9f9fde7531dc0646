"""The effects of machine types and regions on the objects of a cluster at EKS."""

import json
from typing import Any

import pytest

from activities.clouds.eks.wanted.inputs import EksFacts
from activities.clouds.eks.wanted.machines import (
    CardInterface,
    Ec2Machine,
    described_machine,
    from_text,
    interfaces_on,
    to_text,
)
from activities.clouds.eks.wanted.partitions import node_principal_of
from tests.activities.clouds.builders import (
    ROLE,
    an_eks_pool,
    call_of,
    classes,
    eks,
)

ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")


def a_class_of(machine: str, count: int) -> dict[str, Any]:
    accelerator = {"type": "nvidia-x", "count": count}
    nodes = {"instanceType": machine, "accelerator": accelerator}
    return {"provider": "EKS", "eks": nodes}


def group_of(machine: str, facts: EksFacts | None = None) -> dict[str, Any]:
    """Return the arguments that create a pool of these machines."""
    made = eks(
        an_eks_pool(className="x"),
        known=classes(x=a_class_of(machine, 1)),
        facts=facts or EksFacts(zones=ZONES, principal=ROLE),
    )
    return call_of(made, "pool/gpu", "create_nodegroup")


@pytest.mark.parametrize(
    ("machine", "image"),
    [
        ("g6.2xlarge", "AL2023_x86_64_NVIDIA"),
        ("g5g.xlarge", "AL2023_ARM_64_NVIDIA"),
        ("p6e-gb200.36xlarge", "AL2023_ARM_64_NVIDIA"),
        ("p6-b200.48xlarge", "AL2023_x86_64_NVIDIA"),
        ("u-p6e-gb200x72.metal", "AL2023_ARM_64_NVIDIA"),
    ],
)
def test_the_image_fits_the_processors(machine: str, image: str) -> None:
    assert group_of(machine)["amiType"] == image


def test_the_description_of_ec2_decides_about_the_processors() -> None:
    facts = EksFacts(
        zones=ZONES, principal=ROLE, machines={"x9.large": Ec2Machine(arm=True)}
    )
    assert group_of("x9.large", facts)["amiType"] == "AL2023_ARM_64_NVIDIA"


def test_a_full_pool_needs_no_spare_machine_for_an_update() -> None:
    made = eks(an_eks_pool())
    strategies = {
        key: call_of(made, key, "create_nodegroup")["updateConfig"]
        for key in ("pool/gpu", "pool/system")
    }
    assert strategies == {
        "pool/gpu": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "pool/system": {"maxUnavailable": 1},
    }


def test_a_cluster_has_standard_support() -> None:
    call = call_of(eks(an_eks_pool()), "cluster", "create_cluster")
    assert call["upgradePolicy"] == {"supportType": "STANDARD"}


@pytest.mark.parametrize(
    ("machine", "count", "texts"),
    [
        ("g6.2xlarge", 1, []),
        (
            "g6.2xlarge",
            8,
            [
                (
                    "g6.2xlarge has 1 GPUs, and accelerator.count of class x is 8: set it "
                    "to 1, or use another instanceType"
                )
            ],
        ),
        ("new.2xlarge", 8, []),
    ],
)
def test_a_class_counts_the_gpus_of_its_machine(
    machine: str, count: int, texts: list[str]
) -> None:
    made = eks(an_eks_pool(className="x"), known=classes(x=a_class_of(machine, count)))
    assert [each.text for each in made.refused] == texts


def test_a_pool_that_exists_keeps_a_wrong_count() -> None:
    facts = EksFacts(
        zones=ZONES, principal=ROLE, group_zones={"gpu": frozenset({"us-east-2a"})}
    )
    known = classes(x=a_class_of("g6.2xlarge", 8))
    assert eks(an_eks_pool(className="x"), known=known, facts=facts).refused == ()


def test_interfaces_for_efa_end_with_their_machine_and_have_the_tags_of_the_cluster() -> (
    None
):
    made = eks(an_eks_pool(className="p5en", fabric={"type": "EFA"}))
    call = call_of(made, "lt/gpu", "create_launch_template")
    data = call["LaunchTemplateData"]
    assert {each["DeleteOnTermination"] for each in data["NetworkInterfaces"]} == {True}
    assert data["TagSpecifications"] == [
        {
            "ResourceType": "network-interface",
            "Tags": call["TagSpecifications"][0]["Tags"],
        }
    ]


def test_a_pool_keeps_the_interfaces_of_its_template() -> None:
    """Other interfaces would replace its nodes, even if EC2 describes them now."""
    machines = {"p5en.48xlarge": Ec2Machine(gpus=8, interfaces=interfaces_on(16))}
    facts = EksFacts(
        zones=ZONES,
        principal=ROLE,
        machines=machines,
        template_cards={"gpu": (CardInterface(0, 0, "efa"),)},
    )
    made = eks(an_eks_pool(className="p5en", fabric={"type": "EFA"}), facts=facts)
    call = call_of(made, "lt/gpu", "create_launch_template")
    (kept,) = call["LaunchTemplateData"]["NetworkInterfaces"]
    assert (kept["NetworkCardIndex"], kept["InterfaceType"]) == (0, "efa")


def a_description(cards: int, efa: int, interfaces: int) -> dict[str, Any]:
    return {
        "GpuInfo": {"Gpus": [{"Count": 4}]},
        "ProcessorInfo": {"SupportedArchitectures": ["arm64"]},
        "NetworkInfo": {
            "EfaSupported": efa > 0,
            "EfaInfo": {"MaximumEfaInterfaces": efa},
            "MaximumNetworkCards": cards,
            "NetworkCards": [
                {"NetworkCardIndex": card, "MaximumNetworkInterfaces": interfaces}
                for card in range(cards)
            ],
        },
    }


@pytest.mark.parametrize(
    ("cards", "efa", "interfaces", "layout"),
    [
        (3, 3, 15, "0:0:efa 1:1:efa-only 2:1:efa-only"),
        (3, 3, 1, "0:0:efa 1:0:efa-only 2:0:efa-only"),
        (3, 2, 2, "0:0:interface 1:1:efa-only 2:1:efa-only"),
        (2, 1, 2, "0:0:efa"),
        (1, 0, 2, ""),
    ],
)
def test_the_layout_of_network_cards_follows_the_machine_type(
    cards: int, efa: int, interfaces: int, layout: str
) -> None:
    found = described_machine(a_description(cards, efa, interfaces))
    assert (found.gpus, found.arm, to_text(found.interfaces)) == (4, True, layout)
    assert from_text(layout) == found.interfaces


@pytest.mark.parametrize("text", ["32", "0:x:efa", "a:0:efa"])
def test_a_malformed_fact_has_no_interfaces(text: str) -> None:
    assert from_text(text) == ()


def test_an_interface_names_card_and_device() -> None:
    assert from_text("3:1:efa-only") == (CardInterface(3, 1, "efa-only"),)


@pytest.mark.parametrize(
    ("region", "principal"),
    [
        ("us-east-2", "ec2.amazonaws.com"),
        ("us-gov-west-1", "ec2.amazonaws.com"),
        ("cn-north-1", "ec2.amazonaws.com.cn"),
        ("us-iso-east-1", "ec2.c2s.ic.gov"),
    ],
)
def test_the_role_of_nodes_trusts_ec2_by_its_name_in_the_partition(
    region: str, principal: str
) -> None:
    assert node_principal_of(region) == principal
    role = call_of(eks(region=region), "iam/node", "create_role")
    (statement,) = json.loads(role["AssumeRolePolicyDocument"])["Statement"]
    assert statement["Principal"] == {"Service": principal}
