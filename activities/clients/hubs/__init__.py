"""Model hubs and registries behind `RevisionSource`: Hugging Face, OCI, S3."""
