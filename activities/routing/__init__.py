"""Activities on the control cluster."""
