"""How the product logs: lines for people on a terminal, key=value lines for everything else, always to stderr."""

import sys

import structlog


def configure_logs() -> None:
    """Set up structlog for a process that is ours."""
    on_terminal = sys.stderr.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if on_terminal else "iso", utc=not on_terminal),
    ]
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(pad_event_to=24)]
        if on_terminal
        else [
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False),
        ]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
