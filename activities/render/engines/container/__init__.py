"""Additions to the container of an engine, one subject per module.

The pod around it is in `pods.py`, which imports these modules. Optional features of an
engine are in `options/`, and the additions of prefill and decode in
`disaggregation.py`.
"""
