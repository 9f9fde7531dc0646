"""Requests to a ModelService through the control gateway, and who served them."""
