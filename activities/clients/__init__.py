"""The only modules that know the outside systems' own libraries, each behind a Protocol of `activities`."""
