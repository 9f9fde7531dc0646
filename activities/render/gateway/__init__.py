"""What is installed on the control cluster: the definitions of the Gateway API, Traefik, the Gateway that all services share, MetalLB."""
