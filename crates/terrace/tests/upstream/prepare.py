"""Unpacks llama.cpp's tests of its server, without the lines of replaced.toml.

prepare.py SDIST DIRECTORY
"""

import sys
import tarfile
import tomllib
from pathlib import Path

WANTED = ("/vendor/llama.cpp/tools/server/tests/", "/vendor/llama.cpp/models/templates/")


def unpack(sdist, to):
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.isfile() and any(part in member.name for part in WANTED):
                member.name = member.name.split("/vendor/llama.cpp/")[1]
                archive.extract(member, to, filter="data")


def replace(tests, replaced):
    for file, lines in replaced.items():
        path = tests / file
        text = path.read_text().split("\n")
        for wanted in lines:
            at = [number for number, line in enumerate(text) if line.strip().split("  # ")[0] == wanted]
            if not at:
                sys.exit(f"{file} has no line `{wanted}`")
            for number in at:
                indent = len(text[number]) - len(text[number].lstrip())
                text[number] = " " * indent + "pass"
        path.write_text("\n".join(text))


def main():
    sdist, to = sys.argv[1:]
    unpack(sdist, to)
    replaced = tomllib.loads((Path(__file__).parent / "replaced.toml").read_text())
    replace(Path(to) / "tools/server/tests", replaced)


main()
