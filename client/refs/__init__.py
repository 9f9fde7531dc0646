"""References to objects as users write them: `md/NAME`, label selectors, paths into JSON trees."""
