"""Which fleet is simulated: the fleet file, remembered ports, and the manifests that make it known to the product."""
