"""The admin pages of jobs and runs: lists to read, with the acts to cancel something and to run a job now."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.http import urlencode

from horae.core.errors import HoraeError
from horae.django import app, browse
from horae.django.models import HoraeJob, HoraeRun


class StoreAdmin(admin.ModelAdmin):
    """A page of things in the store, which is no table of Django."""

    read: ClassVar[Callable[..., Coroutine[Any, Any, browse.AdminPage[Any]]]]
    statuses: ClassVar[Sequence[str]]
    placeholder: ClassVar[str]
    template: ClassVar[str]

    def get_urls(self) -> list[Any]:
        """Have one page: there is nothing to add or change."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds jobs here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody deletes jobs here; they can be cancelled."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show a page, or do what a button says."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._act(request)
        search = browse.AdminSearch(
            status=request.GET.get("status", ""),
            text=request.GET.get("q", ""),
            cursor=request.GET.get("cursor") or None,
        )
        try:
            page = app.on_store(partial(type(self).read, owner=app.owner, search=search))
        except HoraeError as exc:
            messages.error(request, str(exc))
            page = browse.AdminPage(rows=[], cursor=None)
        return TemplateResponse(request, self.template, self._context(request, search, page) | (extra_context or {}))

    def _context(self, request: HttpRequest, search: browse.AdminSearch, page: browse.AdminPage[Any]) -> dict[str, Any]:
        chosen = {"status": search.status, "q": search.text}
        return {
            **self.admin_site.each_context(request),
            "title": f"{self.opts.verbose_name_plural}".capitalize(),
            "opts": self.opts,
            "rows": page.rows,
            "search": search,
            "statuses": self.statuses,
            "placeholder": self.placeholder,
            "may_act": self.has_change_permission(request),
            "next": None if page.cursor is None else f"?{urlencode({**chosen, 'cursor': page.cursor})}",
        }

    def _act(self, request: HttpRequest) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        action, subject = request.POST.get("action", ""), request.POST.get("id", "")
        by = f"django:{request.user.get_username()}"
        try:
            done = app.on_store(partial(browse.act, action=action, subject=subject, owner=app.owner, by=by))
            messages.success(request, done)
        except HoraeError as exc:
            messages.error(request, str(exc))
        return HttpResponseRedirect(request.get_full_path())


@admin.register(HoraeJob)
class JobAdmin(StoreAdmin):
    """The list of jobs."""

    read = staticmethod(browse.job_page)
    statuses = browse.JOB_STATUSES
    placeholder = "part of a name, task or key"
    template = "admin/horae/jobs.html"


@admin.register(HoraeRun)
class RunAdmin(StoreAdmin):
    """The list of runs."""

    read = staticmethod(browse.run_page)
    statuses = tuple(browse.RUN_STATES)
    placeholder = "name of a task"
    template = "admin/horae/runs.html"
