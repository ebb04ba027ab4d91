"""`manage.py horae`."""
