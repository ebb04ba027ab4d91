"""The OpenAPI document, and the HTML reference that is rendered from it."""
