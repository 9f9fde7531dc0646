"""ModelService: a stable address over endpoints of its namespace, as an HTTPRoute on the control cluster."""
