"""The version of the placement rules, recorded with every decision."""

SCHEDULER_VERSION = "1.2.0"
