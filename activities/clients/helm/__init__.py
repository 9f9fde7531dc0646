"""Helm releases on clusters behind `HelmPort`: one helm process per call, through pyhelm3.

`port.py` is what users import, and knows no SDK. Not here: which releases make up the serving stack, and when they are ready.
"""
