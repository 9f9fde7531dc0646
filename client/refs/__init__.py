"""References: objects as users write them (`md/NAME`), label selectors, paths into the JSON tree of an object. Imports no other package."""
