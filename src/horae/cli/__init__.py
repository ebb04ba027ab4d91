"""The command line: a thin layer over the REST API, and the commands that start nodes."""

INTERRUPTED = 130  # the exit code of a command that Ctrl-C stopped, as shells expect it


def main() -> int:
    """Run the command in `sys.argv` and return the exit code of the process."""
    try:
        from horae.cli.app import run  # late, so that importing the package costs nothing

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
