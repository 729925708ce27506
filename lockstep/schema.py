"""`lockstep schema`: JSON Schema of any message of the wire, and the meaning of every diagnosis."""

from typing import Annotated

import typer

from lockstep.options import Output, OutputOption, print_json, wide_console
from schemas.errors import LockstepError

DIAGNOSIS = "diagnosis"


def schema(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="A message, or `diagnosis`.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the JSON Schema of KIND; without KIND, the names there are."""
    from schemas.codec import json_schema, models

    if kind is None:
        names = [DIAGNOSIS, *models()]
        if output is Output.JSON:
            print_json(names)
        else:
            print("\n".join(names))
        return
    if kind.lower() == DIAGNOSIS:
        _print_diagnoses(output)
        return
    found = next((name for name in models() if name.lower() == kind.lower()), None)
    if found is None:
        raise LockstepError(f"schema {kind}: no such message; `lockstep schema` lists them")
    print_json(json_schema(found))


def _print_diagnoses(output: Output) -> None:
    from state.model.diagnoses import MEANINGS

    meanings = {str(code): text for code, text in MEANINGS.items()}
    if output is Output.JSON:
        print_json(meanings)
        return
    from rich.table import Table

    table = Table("code", "meaning", box=None)
    for code, text in meanings.items():
        table.add_row(code, text)
    wide_console().print(table)
