"""The outside world, really: `ottla.environment` on the kernel."""
