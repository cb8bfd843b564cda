"""What the server says of itself to monitoring: `/healthz` and, for Prometheus, `/metrics`."""
