"""Groups of settings with many fields, and the base class of all groups."""
