"""The command that simulates lattices of spins and writes a file."""

from __future__ import annotations

from pathlib import Path

from ...cli.app import help_epilogue
from ...cli.terminal import RECIPE_CHANGES
from ...errors import UserError
from ...files.atomic import make_folder


@help_epilogue("Keys: `sciformer recipes spins/ising-vit` lists them under `data`.")
def lattices(out: Path) -> None:
    """States of the 2-D Ising model, with the keys of the reader: `--data.size 16 --data.number 20`.

    Parameters
    ----------
    out
        The file to write, .npz.
    """
    changes = dict(RECIPE_CHANGES)
    if out.suffix != ".npz":
        hint = f"Call it {out.with_suffix('.npz')}"
        raise UserError(f"the name of the file must end in .npz, not {out}", hint=hint, file=out)
    other = next((key for key in changes if not key.startswith("data.")), "")
    if other:
        hint = "Nothing is trained here: only keys of the reader can be changed, such as --data.size 16."
        raise UserError(f"--{other} is not a key of the reader", hint=hint, key=other)
    from ...recipe import Recipe
    from .sections import IsingLattices, simulate_lattices, write_table

    section: IsingLattices = Recipe.load("spins/ising-vit", changes, where="on the command line").data
    make_folder(out.parent)
    table = simulate_lattices(section)
    write_table(out, table)
    print(f"wrote {len(table['image']):,} lattices of {section.size} x {section.size} spins to {out}")
