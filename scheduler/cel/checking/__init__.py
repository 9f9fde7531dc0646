"""Static types of a selector: reject selectors that Kubernetes would reject."""
