"""What stands in the source tree is in the package too."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path, PurePath

ROOT = Path(__file__).parents[1]
FILES = [
    file.relative_to(ROOT)
    for package in ("actors", "intercom")
    for file in (ROOT / package).rglob("*")
    if file.is_file() and "__pycache__" not in file.parts
]


def test_every_file_that_is_no_module_is_named_as_package_data() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    data = {name: globs.split() for name, globs in parser["options.package_data"].items()}
    left_out = [
        str(file)
        for file in FILES
        if file.suffix != ".py"
        and not any(
            len(PurePath(glob).parts) == len(inside.parts) and inside.match(glob)
            for package in file.parents
            for inside in [file.relative_to(package)]
            for glob in data.get(".".join(package.parts), ())
        )
    ]
    assert left_out == []


def test_every_directory_of_modules_is_a_package() -> None:
    directories = {file.parent for file in FILES if file.suffix == ".py"}
    assert [str(each) for each in sorted(directories) if not (ROOT / each / "__init__.py").exists()] == []


def test_nothing_that_is_shipped_has_faults_on_demand() -> None:
    """The hooks that crash a server stand beside the tests; what is shipped has the places where it may crash."""
    shipped = [ROOT / file for file in FILES if file.suffix == ".py"]
    named = [
        str(file.relative_to(ROOT))
        for file in shipped
        if "INTERCOM_FAULT" in (text := file.read_text()) or re.search(r"import faults\b", text)
    ]
    assert [name for name in named if not name.startswith("intercom/store/")] == []
    setters = [
        file
        for file in shipped
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assign)
        and any(isinstance(each, ast.Attribute) and each.attr == "hook" for each in node.targets)
    ]
    assert setters == []


def test_no_machine_of_ours_is_named() -> None:
    places = (b"/" + b"work/", b"/" + b"opt/iv", b"/" + b"root/")
    named = [
        str(file.relative_to(ROOT))
        for directory in ("actors", "intercom", "docs", "examples", "changes", ".ci")
        for file in (ROOT / directory).rglob("*")
        if file.is_file() and file.suffix != ".pyc" and any(place in file.read_bytes() for place in places)
    ]
    assert named == []
