"""Puts the parts together and runs them: nodes, processes, the ASGI mount, demo jobs, the doctor."""
