"""The `ottla` command: finds the noun on the command line, and loads only its code.

Data goes to stdout, messages to stderr. The exit code is 0, 1 for a failure, 2 for a wrong call,
130 for Ctrl-C.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

import ottla
from ottla.cli.support.exit_codes import INTERRUPTED, CommandError, say

PROGRAM: Final = "ottla"
MODULE_BY_COMMAND: Final = {
    "start": ("ottla.cli.commands.start", "Run a broker until it is told to stop."),
    "topic": ("ottla.cli.commands.topic", "Create, list, describe, alter, trim and delete topics."),
    "produce": ("ottla.cli.commands.produce", "Write records, read from stdin, to a topic."),
    "consume": ("ottla.cli.commands.consume", "Read records from topics to stdout."),
    "group": ("ottla.cli.commands.group", "List, describe, reset and delete consumer groups."),
    "transaction": ("ottla.cli.commands.transaction", "List, describe, find and end transactions."),
    "schema": (
        "ottla.cli.commands.schema",
        "Show, register, check, compare and infer schemas.",
    ),
    "config": (
        "ottla.cli.commands.config",
        "Describe and change settings of topics, brokers, groups.",
    ),
    "partition": (
        "ottla.cli.commands.partition",
        "List, move and reassign partitions, elect leaders.",
    ),
    "broker": ("ottla.cli.commands.broker", "List brokers, empty them and remove them."),
    "cluster": (
        "ottla.cli.commands.cluster",
        "Start a local cluster; describe brokers and their disks.",
    ),
    "storage": (
        "ottla.cli.quorum.storage",
        "Format the directories of a node with a quorum of controllers.",
    ),
    "quorum": ("ottla.cli.quorum.quorum", "Show the controllers of a cluster, change its voters."),
    "mirror": ("ottla.cli.commands.mirror", "Copy topics and group offsets to another cluster."),
    "migrate": (
        "ottla.cli.migration.command",
        "Check a Kafka cluster before Ottla's brokers replace its brokers.",
    ),
    "connect": (
        "ottla.cli.commands.connect",
        "Run connectors that a file declares, or check them.",
    ),
    "pipeline": ("ottla.cli.commands.pipeline", "Run, list, look at and stop pipelines on Spark."),
    "bench": ("ottla.cli.commands.bench", "Measure how fast a cluster takes and gives records."),
    "simulate": (
        "ottla.cli.commands.simulate",
        "Let a simulated cluster go through faults, by a seed.",
    ),
    "log": ("ottla.cli.commands.log", "Look into the files of a partition, without a broker."),
    "doctor": ("ottla.cli.commands.doctor", "Check this machine and this installation."),
    "version": ("ottla.cli.commands.version", "Show the versions of Ottla and Python."),
}
"""The module of each command, and its help text until the module is loaded."""

HELP: Final = """An event-streaming platform that speaks the Kafka protocol.

A broker for a laptop, and the tools for it and for any other Kafka cluster:

\b
  ottla start                                   a broker on 127.0.0.1:9092
  ottla topic create letters -p 3               a topic with three partitions
  echo 'Dearest Ottla' | ottla produce letters
  ottla consume letters -f '%p %o %k %v\\n'
  ottla consume letters -f json --follow | jq .value
  ottla group describe readers                  members, partitions and lag

Commands find the cluster by --brokers (-b) or OTTLA_BROKERS; the default is 127.0.0.1:9092.
"""
_COMPLETION: Final = "_OTTLA_COMPLETE"
_COMPLETED_WORDS: Final = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Variables with the words to complete: zsh and fish use the first, bash the second."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    asked = _words_to_complete() if _COMPLETION in os.environ else words
    try:
        _run(words, next((word for word in asked if not word.startswith("-")), ""))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except CommandError as error:
        say(str(error))
        raise SystemExit(error.code) from None


def _words_to_complete() -> list[str]:
    said = next((os.environ[name] for name in _COMPLETED_WORDS if name in os.environ), "")
    return said.split()[1:]


def _run(words: list[str], command: str) -> None:
    gc.disable()  # loaded modules stay: scanning them for garbage costs a tenth of a start
    app = application(command)
    gc.freeze()
    gc.enable()
    app(words, PROGRAM)


def application(command: str) -> typer.Typer:
    """Build the whole command line; only `command` is loaded, the others are stubs."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_before)
    for name, (module, summary) in MODULE_BY_COMMAND.items():
        if name == command:
            import_module(module).register(app, name, summary)
        else:
            app.command(name, help=summary)(_not_loaded)
    return app


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"{PROGRAM} {ottla.__version__}\n")
        raise typer.Exit


def _before(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Handle the options that belong to no command."""


def _not_loaded() -> None:
    raise AssertionError("a command that was not named is run")


if __name__ == "__main__":
    main()
