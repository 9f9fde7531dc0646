"""What workflows and activities send each other: arguments of signals, queries and updates, input and output of activities.

Every model derives from `api_types.base.Message` and stays readable for old histories: a field may be added with a default, and no JSON
name changes. Not here: manifests (`resources`) and their checks (`validation`). May import `resources` and the root modules of `api_types`.
"""
