"""`horae completion`: print the script that lets a shell complete commands, options and names."""

from typing import Annotated, Literal

from cyclopts import Parameter

from horae.cli.output import print_text

Shell = Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that the script is for.")]


def completion(shell: Shell, /) -> None:
    """Print a script for tab completion; each shell loads it in its own way.

    bash: `source <(horae completion bash)` in ~/.bashrc. zsh: write it to a file _horae in a folder of $fpath. fish:
    write it to ~/.config/fish/completions/horae.fish. Names of tasks and queues come from the server, if it answers
    within half a second.
    """
    from horae.cli.app import build

    print_text(build().generate_completion(prog_name="horae", shell=shell))
