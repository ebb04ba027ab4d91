"""What lies between HTTP and a route: services, routing, idempotency, JSON responses, event streams."""
