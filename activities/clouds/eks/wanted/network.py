"""VPC, subnets, gateways, routes, and security groups of an EKS cluster."""

from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    Parameters,
    Token,
)
from activities.clouds.eks.wanted.inputs import EksInputs
from api_types import labels

VPC = "net/vpc"
SUBNETS = "net/subnets"
GATEWAY = "net/igw"
ADDRESS = "net/eip"
NAT = "net/nat"
PUBLIC_ROUTES = "net/routes-public"
PRIVATE_ROUTES = "net/routes-private"
EFS_GROUP = "sg/efs"
EFA_GROUP = "sg/efa"

_ANYWHERE = "0.0.0.0/0"
_NFS_PORT = 2049
# The tag of subnets in which public load balancers are placed.
_PUBLIC_TAG = "kubernetes.io/role/elb"


def network(inputs: EksInputs) -> list[DesiredObject]:
    """Return VPC, subnets, gateways and routes."""
    return [
        _vpc(inputs),
        _subnets(inputs),
        _internet_gateway(inputs),
        _address(inputs),
        _nat(inputs),
        _routes(
            inputs,
            PUBLIC_ROUTES,
            "public",
            (GATEWAY, SUBNETS),
            {"GatewayId": Fact(GATEWAY)},
        ),
        # Private subnets reach the internet through a public one. Without its routes no
        # node could join.
        _routes(
            inputs,
            PRIVATE_ROUTES,
            "private",
            (NAT, SUBNETS, PUBLIC_ROUTES),
            {"NatGatewayId": Fact(NAT)},
        ),
    ]


def private_subnet(zone: str) -> Fact:
    """Return the id of the private subnet of a zone."""
    return Fact(SUBNETS, f"private-{zone}")


def public_subnet(zone: str) -> Fact:
    """Return the id of the public subnet of a zone."""
    return Fact(SUBNETS, f"public-{zone}")


def _vpc(inputs: EksInputs) -> DesiredObject:
    """Return the VPC, with the choice of zones as a tag.

    The tag is never changed, so zones that are added later are not in it.
    """
    zones = inputs.facts.chosen or [pair.zone for pair in inputs.pairs]
    chosen = {labels.CLOUD_ZONES: " ".join(zones)}
    create = CloudCall(
        "ec2",
        "create_vpc",
        {
            "CidrBlock": str(inputs.settings.vpc_cidr),
            "TagSpecifications": inputs.tag_specifications("vpc", VPC, **chosen),
        },
        {"id": "Vpc.VpcId"},
    )
    # EC2 accepts one attribute per call.
    support = CloudCall(
        "ec2",
        "modify_vpc_attribute",
        {"VpcId": Fact(VPC), "EnableDnsSupport": {"Value": True}},
    )
    names = CloudCall(
        "ec2",
        "modify_vpc_attribute",
        {"VpcId": Fact(VPC), "EnableDnsHostnames": {"Value": True}},
    )
    return DesiredObject(
        VPC, "VPC", inputs.owner.base, (), (create, support, names), "state available"
    )


def _subnets(inputs: EksInputs) -> DesiredObject:
    calls: list[CloudCall] = []
    for pair in inputs.pairs:
        for fact, block in (
            (public_subnet(pair.zone), pair.public),
            (private_subnet(pair.zone), pair.private),
        ):
            public = fact == public_subnet(pair.zone)
            name = (
                f"{inputs.owner.base}-{'public' if public else 'private'}-{pair.letter}"
            )
            more = {_PUBLIC_TAG: "1"} if public else {}
            tags = inputs.tag_specifications("subnet", SUBNETS, name, **more)
            parameters: Parameters = {
                "VpcId": Fact(VPC),
                "CidrBlock": str(block),
                "AvailabilityZone": pair.zone,
                "TagSpecifications": tags,
            }
            calls.append(
                CloudCall(
                    "ec2", "create_subnet", parameters, {fact.name: "Subnet.SubnetId"}
                )
            )
            if public:
                calls.append(
                    CloudCall(
                        "ec2",
                        "modify_subnet_attribute",
                        {"SubnetId": fact, "MapPublicIpOnLaunch": {"Value": True}},
                    )
                )
    return DesiredObject(
        SUBNETS,
        "Subnets",
        f"{len(inputs.pairs)} public, {len(inputs.pairs)} private",
        (VPC,),
        tuple(calls),
        "available",
    )


def _internet_gateway(inputs: EksInputs) -> DesiredObject:
    create = CloudCall(
        "ec2",
        "create_internet_gateway",
        {"TagSpecifications": inputs.tag_specifications("internet-gateway", GATEWAY)},
        {"id": "InternetGateway.InternetGatewayId"},
    )
    attach = CloudCall(
        "ec2",
        "attach_internet_gateway",
        {"InternetGatewayId": Fact(GATEWAY), "VpcId": Fact(VPC)},
    )
    return DesiredObject(
        GATEWAY,
        "InternetGateway",
        inputs.owner.base,
        (VPC,),
        (create, attach),
        "attached",
    )


def _address(inputs: EksInputs) -> DesiredObject:
    tags = inputs.tag_specifications("elastic-ip", ADDRESS)
    call = CloudCall(
        "ec2",
        "allocate_address",
        {"Domain": "vpc", "TagSpecifications": tags},
        {"id": "AllocationId"},
    )
    return DesiredObject(
        ADDRESS, "ElasticIP", inputs.owner.base, (), (call,), "allocated"
    )


def _nat(inputs: EksInputs) -> DesiredObject:
    """Return the one NAT gateway of all zones.

    A gateway in each zone would cost more than the traffic between zones.
    """
    parameters: Parameters = {
        "SubnetId": public_subnet(inputs.control_plane_zones[0]),
        "AllocationId": Fact(ADDRESS),
        "ClientToken": Token(),
        "TagSpecifications": inputs.tag_specifications("natgateway", NAT),
    }
    call = CloudCall(
        "ec2", "create_nat_gateway", parameters, {"id": "NatGateway.NatGatewayId"}
    )
    return DesiredObject(
        NAT,
        "NatGateway",
        inputs.owner.base,
        (SUBNETS, ADDRESS, GATEWAY),
        (call,),
        "state available",
    )


def _routes(
    inputs: EksInputs,
    key: str,
    tier: str,
    needs: tuple[str, ...],
    target: dict[str, Fact],
) -> DesiredObject:
    name = f"{inputs.owner.base}-{tier}"
    create = CloudCall(
        "ec2",
        "create_route_table",
        {
            "VpcId": Fact(VPC),
            "ClientToken": Token(),
            "TagSpecifications": inputs.tag_specifications("route-table", key, name),
        },
        {"id": "RouteTable.RouteTableId"},
    )
    route = CloudCall(
        "ec2",
        "create_route",
        {"RouteTableId": Fact(key), "DestinationCidrBlock": _ANYWHERE, **target},
    )
    subnet = public_subnet if tier == "public" else private_subnet
    joined = [
        CloudCall(
            "ec2",
            "associate_route_table",
            {"RouteTableId": Fact(key), "SubnetId": subnet(pair.zone)},
        )
        for pair in inputs.pairs
    ]
    return DesiredObject(
        key, "RouteTable", name, needs, (create, route, *joined), "route active"
    )


def efs_group(inputs: EksInputs) -> DesiredObject:
    """Return the security group of the cache volumes, which allows NFS from the VPC."""
    nfs: Parameters = {
        "IpProtocol": "tcp",
        "FromPort": _NFS_PORT,
        "ToPort": _NFS_PORT,
        "IpRanges": [{"CidrIp": str(inputs.settings.vpc_cidr)}],
    }
    allow = CloudCall(
        "ec2",
        "authorize_security_group_ingress",
        {"GroupId": Fact(EFS_GROUP), "IpPermissions": [nfs]},
    )
    return _group(
        inputs, EFS_GROUP, f"{inputs.owner.base}-efs", "NFS from the VPC", (allow,)
    )


def efa_group(inputs: EksInputs) -> DesiredObject:
    """Return the security group of EFA interfaces.

    EFA needs all traffic among them in both directions.
    """
    own: Parameters = {
        "IpProtocol": "-1",
        "UserIdGroupPairs": [{"GroupId": Fact(EFA_GROUP)}],
    }
    group: Parameters = {"GroupId": Fact(EFA_GROUP), "IpPermissions": [own]}
    rules = (
        CloudCall("ec2", "authorize_security_group_ingress", group),
        CloudCall("ec2", "authorize_security_group_egress", group),
    )
    return _group(
        inputs,
        EFA_GROUP,
        f"{inputs.owner.base}-efa",
        "All traffic among EFA interfaces",
        rules,
    )


def _group(
    inputs: EksInputs,
    key: str,
    name: str,
    description: str,
    rules: tuple[CloudCall, ...],
) -> DesiredObject:
    parameters: Parameters = {
        "GroupName": name,
        "Description": description,
        "VpcId": Fact(VPC),
        "TagSpecifications": inputs.tag_specifications("security-group", key, name),
    }
    create = CloudCall("ec2", "create_security_group", parameters, {"id": "GroupId"})
    # EC2 adds a rule to every group that allows all outgoing traffic.
    out: Parameters = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": _ANYWHERE}]}
    revoke = CloudCall(
        "ec2",
        "revoke_security_group_egress",
        {"GroupId": Fact(key), "IpPermissions": [out]},
    )
    return DesiredObject(
        key, "SecurityGroup", name, (VPC,), (create, *rules, revoke), "rules present"
    )
