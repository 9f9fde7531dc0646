"""Explanations of decisions: conditions, headlines, near misses, reports.

The package uses the same filters as placement, so an explanation cannot differ from the
decision. Code that changes a fleet does not belong here.
"""
