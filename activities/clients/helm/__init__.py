"""Helm releases on clusters behind `HelmPort`: one helm process per call.

The processes run through pyhelm3. Other packages import `port.py`, which does not
depend on an SDK. The choice of the releases of the serving stack, and their readiness,
do not belong here.
"""
