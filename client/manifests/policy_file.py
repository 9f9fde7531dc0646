"""The placement policy in a file, for `policy set` and for plans with another policy."""

from pathlib import Path

from client.manifests.documents import title_of
from client.manifests.yaml_file import read_yaml
from fleet_client.errors import Refused
from scheduler import InvalidPolicyError, SchedulerOptions, read_policy


def read_policy_file(file: Path) -> SchedulerOptions:
    """Read and check a policy document. Raise `Refused` with all problems."""
    tree = read_yaml(file, "policy")
    try:
        return read_policy(tree)
    except InvalidPolicyError as error:
        raise Refused(
            f"{title_of(str(file))} is not a usable policy",
            details=error.problems,
            next_step="fix these fields",
        ) from error
