"""Count the files and functions of the product that each walk enters: `python -m tests.walks [--list WALK]`."""

from __future__ import annotations

import argparse

from tests.walks.walk import KINDS, Function, Walk, files
from tests.walks.walks import WALKS, made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=__doc__)
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"only these: {', '.join(WALKS)}")
    parser.add_argument("--list", choices=WALKS, metavar="WALK", help="the files of this walk, with their functions")
    options = parser.parse_args()
    if unknown := [name for name in options.walks if name not in WALKS]:
        parser.error(f"there is no walk {unknown[0]!r}; there are {', '.join(WALKS)}")
    if options.list is not None:
        show(made(options.list))
        return
    print(f"{'files/functions':<18}" + "".join(f"{each:>10}" for each in (*KINDS, "together")))
    for name in options.walks or WALKS:
        row(name, made(name))
    for name in options.walks or WALKS:
        print(f"{name}: {WALKS[name].__doc__}")


def row(name: str, walk: Walk) -> None:
    """Print the figures of a walk."""
    sides = [*(walk.functions(kind) for kind in KINDS), walk.together()]
    figures = (f"{files(side)}/{len(side)}" if side else "-" for side in sides)
    print(f"{name:<18}" + "".join(f"{each:>10}" for each in figures), flush=True)


def show(walk: Walk) -> None:
    """Print what each kind of process enters: files in the order of first entry, and so the functions of each."""
    for kind in KINDS:
        functions = walk.functions(kind)
        of: dict[str, list[Function]] = {}
        for each in functions:
            of.setdefault(each.file, []).append(each)
        print(f"{kind}: {len(of)} files, {len(functions)} functions")
        for file, entered in of.items():
            print(f"  {file}")
            for each in entered:
                print(f"    {each.line:>4}  {each.name}")


if __name__ == "__main__":
    main()
