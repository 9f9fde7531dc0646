"""Commands for the fleet on this machine: up, down. What they start is in `client.local`."""
