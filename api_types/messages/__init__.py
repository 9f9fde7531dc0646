"""What workflows and activities send each other: signals, activity orders and their answers.

Every model derives from `api_types.base.Message` and stays readable for old histories: a field may be added with a default, and none is
renamed. Not here: manifests (`resources`).
"""
