"""Hubs and registries that models are downloaded from."""
