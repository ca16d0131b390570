#!/usr/bin/env python3
"""embed_files.py OUT FILE... - files of a web page as a table of C (app/serve/page_files.h): name,
type, a tag that changes with the contents, bytes."""

import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
         ".json": "application/json"}


def rows_of(data):
    """Lines of numbers."""
    for i in range(0, len(data), 24):
        yield ",".join(str(b) for b in data[i:i + 24]) + ","


def main():
    out, *names = sys.argv[1:]
    lines, table = ['#include "serve/page_files.h"'], []
    for i, path in enumerate(map(pathlib.Path, names)):
        data = path.read_bytes()
        lines += [f"static const unsigned char file_{i}[] = {{", *rows_of(data), "};"]
        table.append(f'    {{ "{path.name}", "{TYPES[path.suffix]}", '
                     f'"\\"{hashlib.sha256(data).hexdigest()[:16]}\\"", file_{i}, '
                     f"sizeof file_{i} }},")
    lines += ["const xd_page_file xd_page_files[] = {", *table, "    { .name = 0 },", "};"]
    pathlib.Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")


main()
