"""The control cluster's gateway: Gateway API definitions, Traefik, Gateway, MetalLB."""
