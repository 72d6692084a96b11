"""Commands whose help ends with examples."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Run = TypeVar("Run", bound=Callable[..., Any])


class ReachCommand(click.Command):
    """A command. ``examples``: command lines that show what it is good for."""

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(self.examples, formatter)


class ReachGroup(click.Group):
    """A command that is only a roof over others."""

    command_class = ReachCommand

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(self.examples, formatter)


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """The examples as they are to be typed, never wrapped."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def json_option(function: Run) -> Run:
    """``--json``: for programs."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")
    return option(function)
