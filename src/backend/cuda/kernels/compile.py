#!/usr/bin/env python3
"""Compiles the kernels with nvcc and keeps what ptxas says of them.

usage: compile.py NVCC SOURCE INCLUDES FATBIN LOG DEPFILE ARCH...

FATBIN holds code for every ARCH (80, 90a ...), and PTX of the first one for all later GPUs. LOG has
registers and spills of every kernel (tests/sim/check_kernels.py).
"""
import pathlib
import subprocess
import sys


def main():
    nvcc, source, includes, fatbin, log, depfile, *archs = sys.argv[1:]
    code = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in archs]
    code.append(f"-gencode=arch=compute_{archs[0]},code=compute_{archs[0]}")
    version = subprocess.run([nvcc, "--version"], text=True, capture_output=True).stdout
    options = subprocess.run([nvcc, "--help"], text=True, capture_output=True).stdout
    if "--compress-mode" in options:
        code.append("--compress-mode=size")
    run = subprocess.run([nvcc, "-std=c++17", "-O3", "-I", includes, "-Xptxas", "-v", "-t", "2",
                          *code, "--fatbin", source, "-o", fatbin], text=True, capture_output=True)
    pathlib.Path(log).write_text(version + run.stdout + run.stderr)
    if run.returncode:
        print(run.stdout + run.stderr, file=sys.stderr)
        return run.returncode
    return subprocess.run([nvcc, "-std=c++17", "-I", includes, "-M", "-MF", depfile, "-MT", fatbin,
                           source]).returncode


sys.exit(main())
