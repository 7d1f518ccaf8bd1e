"""``ganger completion``: scripts that make a shell complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  ganger completion bash > /etc/bash_completion.d/ganger
    zsh:   ganger completion zsh > ~/.zfunc/_ganger
    fish:  ganger completion fish > ~/.config/fish/completions/ganger.fish
    """  # noqa: D301 - the mark that keeps lines apart
    from .main import ganger  # noqa: PLC0415 - the whole command line, seen from inside it

    found = get_completion_class(shell)
    assert found is not None
    source = found(ganger, {}, "ganger", "_GANGER_COMPLETE").source()
    click.echo(source.replace(_AS_IT_IS, _QUOTED) if shell == "bash" else source)


_AS_IT_IS = "COMPREPLY+=($value)"
"""How click's script takes a word: bash would type the blank of a name, or what * stands for."""

_QUOTED = """[[ ${COMP_WORDS[$COMP_CWORD]} == [\\'\\"]* ]] || printf -v value %q "$value"
            COMPREPLY+=("$value")"""
"""The other shells quote by themselves. A word that begins with a quote stays as it is."""
