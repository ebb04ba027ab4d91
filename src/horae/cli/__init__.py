"""The command line: a thin layer over the REST API, and the commands that start nodes."""

INTERRUPTED = 130  # what shells report of a command that Ctrl-C ended


def main() -> int:
    """Run the command in `sys.argv` and return the exit code of the process."""
    try:
        from horae.cli.app import run  # late, so that importing the package costs nothing

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
