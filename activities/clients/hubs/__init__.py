"""Model hubs and registries, behind `RevisionSource`: the Hugging Face hub, OCI registries."""
