"""How requests are answered: discovery, reading, watching and writing as a Kubernetes API server does it."""
