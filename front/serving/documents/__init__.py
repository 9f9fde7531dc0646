"""Documents that are the same for every user: discovery and OpenAPI schemas."""
