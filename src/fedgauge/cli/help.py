"""Help on one screen: the options that most people need, and with --help-all every option, in groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from fedgauge.base.errors import InputError
from fedgauge.base.terminal import say
from fedgauge.base.user_code import remedy

Function = TypeVar("Function", bound=Callable[..., Any])
_WHOLE = "fedgauge.help-all"


def everyday(*names: str) -> Callable[[Function], Function]:
    """Name the options that ``--help`` shows, in this order; ``--help-all`` shows the others too.

    The help of a command without this decorator shows all of its options.
    """

    def mark(command: Function) -> Function:
        command.everyday = names  # type: ignore[attr-defined]  # typer copies it to what it makes of the function
        return command

    return mark


def brief(text: str) -> str:
    r"""The first clause of an option's help, and the first of its defaults.

    >>> print(brief(r"Local steps I per round: one number, or one for each worker \[default: 10; with auto, any]."))
    Local steps I per round \[default: 10].
    """
    words, _, default = text.partition(r" \[default: ")
    first = re.split(r"[:;] |\. ", words)[0].rstrip(".")
    return f"{first} \\[default: {re.split('[;]', default)[0].rstrip('].')}]." if default else f"{first}."


def _show_whole(context: Any, option: Any, wanted: bool) -> None:
    if wanted:
        context.meta[_WHOLE] = True
        say(context.get_help())
        context.exit()


@cache
def _help_all() -> Any:
    """The option --help-all, which typer makes from a function: the class of options changes between releases."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def made(show: Annotated[bool, typer.Option("--help-all", help="Show all options and exit.")] = False) -> None:
        pass

    (option,) = typer.main.get_command(app).params
    option.callback, option.is_eager, option.expose_value = _show_whole, True, False
    return option


class Command(TyperCommand):
    """A command whose help shows its everyday options, unless all are asked for."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.params.append(copy(_help_all()))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; what it leaves out is missing from the command for as long as that takes."""
        names = getattr(self.callback, "everyday", None)
        if names is None or ctx.meta.get(_WHOLE):
            super().format_help(ctx, formatter)
            return
        whole, text = self.params, self.help or ""
        options = {each.name: copy(each) for each in whole if each.param_type_name == "option"}
        for each in options.values():
            # One group is enough for ten options, and half a sentence for each.
            each.rich_help_panel, each.help = None, brief(each.help or "")  # type: ignore[attr-defined]
        arguments = [each for each in whole if each.param_type_name == "argument"]
        self.params = [*arguments, *(options[name] for name in names)]
        about, *_, examples = text.split("\n\n")
        self.help = f"{about}\n\n{examples}"
        self.epilog = f"All {len(options)} options, at more length: {ctx.command_path} --help-all"
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params, self.help, self.epilog = whole, text, None


class CommandGroup(TyperGroup):
    """A group of commands, which says where to find a command that is in another group."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params.append(copy(_help_all()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was asked for."""
        if args[0] not in self.commands:
            groups = {name: getattr(each, "commands", {}) for name, each in self.commands.items()}
            places = [f"'{ctx.command_path} {name} {args[0]}'" for name, inside in groups.items() if args[0] in inside]
            if places:
                raise InputError(f"There is no command '{ctx.command_path} {args[0]}'; use {' or '.join(places)}.")
            missing = remedy(" ".join([*ctx.command_path.split()[1:], args[0]]))
            if missing:
                raise InputError(f"The command '{ctx.command_path} {args[0]}' comes with another package; {missing}")
        return super().resolve_command(ctx, args)
