"""What runs inside a tenant: one load stream that measures itself. Needs only numpy and prometheus_client."""
