"""InferenceGateway: the gateway on the control cluster, and its users."""
