"""`modelplane doctor`: check this machine before the first `modelplane up`."""

import os

from client.failures import ExitCode
from client.local.diagnosis import Level, diagnose
from client.local.machine_facts import read_facts
from client.output.tables import columns
from fleet_client.configuration import home_folder


def doctor() -> int:
    """Check whether a fleet can start on this machine, and print a remedy per problem.

    It needs no fleet and changes nothing. The exit code is 1 if something prevents
    `modelplane up`; warnings do not.

    For example:
      modelplane doctor
    """
    findings = diagnose(read_facts(home_folder(), os.environ))
    rows = [[one.level, one.check, one.result] for one in findings]
    for line, one in zip(columns([], rows), findings, strict=True):
        print(line)
        if one.remedy:
            print(f"  next: {one.remedy}")
    if any(one.level is Level.PREVENTS for one in findings):
        return ExitCode.FAILED
    print("`modelplane up` can start a fleet here")
    return ExitCode.DONE
