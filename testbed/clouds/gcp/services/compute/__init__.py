"""Compute Engine: networks and what is in them, over REST. `service` is the entry."""
