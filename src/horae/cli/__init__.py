"""The command line: a thin skin over the REST API, and the commands that start nodes."""


def main() -> int:
    """Run the command in `sys.argv`; the answer is the process's exit code."""
    from horae.cli.app import run  # late, so that importing the package costs nothing

    return run()
