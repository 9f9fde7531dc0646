"""One simulated cluster: its control plane, certificates, nodes, devices and webhooks."""
