"""Which fleet is simulated: the fleet file, and the ports and address ranges that its home remembers."""
