"""What the services do, as functions over one `World`. No protocol is known here: a refusal is a `CloudError`."""
