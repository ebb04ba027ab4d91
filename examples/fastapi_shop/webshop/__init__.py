"""A shop with FastAPI, SQLAlchemy and Horae."""
