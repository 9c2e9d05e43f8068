"""`ottla version`: the versions to name in a bug report."""

import platform

import typer

import ottla
from ottla.cli.support.options import Format
from ottla.cli.support.output import OutputFormat, show_one


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=summary)(version)


def version(form: Format = OutputFormat.TABLE) -> None:
    """Show the versions of Ottla and Python, and the platform."""
    row = {
        "OTTLA": ottla.__version__,
        "PYTHON": platform.python_version(),
        "PLATFORM": platform.platform(),
    }
    show_one(row, form)
