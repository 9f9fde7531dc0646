"""What the front says of itself, the same for everybody: which kinds it serves, and their schemas."""
