"""Groups of settings that are read by themselves, and what all groups are."""
