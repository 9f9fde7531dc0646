"""The groups of settings, a module for each subject, and their base class."""
