"""Commands for the fleet on this machine: up, down, clouds. What they start is in `client.local`."""
