"""Verbs for the fleet on this machine: up, down."""
