"""InferenceGateway: the gateway on the control cluster, and who has objects there."""
