"""The simulated fleet: the fleet file, and the ports and addresses of its home."""
