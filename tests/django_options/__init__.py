"""Tests of `horae.django` that need no project; those of `examples/django_shop` have one."""
