"""Sending a change and following it: edit an object, wait until a workflow has taken it, wait until Ready or gone."""
