"""Pages for monitoring: `/healthz` and, for Prometheus, `/metrics`."""
