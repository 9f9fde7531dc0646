"""Engines of a replica: admission of the spec, containers, device claims, workloads, disaggregation."""
