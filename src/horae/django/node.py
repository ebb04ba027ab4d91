"""The application for processes that run tasks: importing this module sets Django up first.

`horae worker --app horae.django.node:app` does the same as `manage.py horae worker`, if DJANGO_SETTINGS_MODULE is set.
"""

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from horae.django import app

__all__ = ["app"]
