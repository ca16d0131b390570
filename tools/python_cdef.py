#!/usr/bin/env python3
"""The declarations of the public headers, as the Python package cffi reads them.

    tools/python_cdef.py OUTPUT INCLUDE CC [ARG...]

Preprocesses INCLUDE/xdit/tools.h and module.h, which include xdit.h and err.h, by the C compiler
CC and writes a Python module with the declarations of these headers in one string, CDEF, and the
version of the headers in VERSION. What system headers declare is known to cffi.
"""
import pathlib
import re
import subprocess
import sys


def main():
    output, include, cc = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    text = subprocess.run([*cc, "-E", "-I", include, "-include", include / "xdit" / "tools.h",
                           include / "xdit" / "module.h"], check=True, capture_output=True,
                          text=True).stdout
    ours, lines = False, []
    for line in text.splitlines():
        mark = re.match(r'# \d+ "(.*?)"', line)
        if mark:
            ours = pathlib.Path(mark[1]).parent == include / "xdit"
        elif ours and line.strip():
            lines.append(line.rstrip())
    head = (include / "xdit" / "xdit.h").read_text()
    version = ".".join(re.search(rf"#define XDIT_VERSION_{part} (\d+)", head)[1]
                       for part in ("MAJOR", "MINOR", "PATCH"))
    output.write_text('"""Declarations of libxdit, from the headers in xdit/."""\n'
                      f'VERSION = "{version}"\nCDEF = r"""\n' + "\n".join(lines) + '\n"""\n')


main()
