"""Requests to a ModelService through the control gateway, and who responded."""
