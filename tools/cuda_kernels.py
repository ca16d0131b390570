#!/usr/bin/env python3
"""cuda_kernels.py - the steps from kernels/all.cu to the fatbin inside the library

    cuda_kernels.py cubin NVCC ARCH SOURCE CUBIN LOG DEPFILE INCLUDE...
    cuda_kernels.py ptx   NVCC ARCH SOURCE PTX DEPFILE INCLUDE...
    cuda_kernels.py join  NVCC FATBIN CUBIN... PTX    names end in _ARCH.cubin and _ARCH.ptx
    cuda_kernels.py embed FATBIN SOURCE [NVCC]        as an array of C, and the version of NVCC

The log of a cubin is what ptxas says about registers, shared memory and spills.
"""
import os
import re
import shutil
import subprocess
import sys


def run(command):
    """The standard error of a command, which has to succeed."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr + 'failed: ' + ' '.join(command))
    return done.stderr


def nvcc_line(nvcc, source, out, depfile, include):
    return ([nvcc, '-std=c++17', '-O3', source, '-o', out, '-MD', '-MF', depfile, '-MT', out] +
            ['-I' + i for i in include])


def cubin(nvcc, arch, source, out, log, depfile, *include):
    said = run(nvcc_line(nvcc, source, out, depfile, include) +
               ['-cubin', '-arch=sm_' + arch, '-Xptxas', '-v'])
    with open(log, 'w') as f:
        f.write(re.sub(r'.*Compile time.*\n', '', said))


def ptx(nvcc, arch, source, out, depfile, *include):
    run(nvcc_line(nvcc, source, out, depfile, include) + ['-ptx', '-arch=compute_' + arch])


def join(nvcc, out, *parts):
    real = os.path.realpath(shutil.which(nvcc) or nvcc)
    beside = os.path.join(os.path.dirname(real), 'fatbinary')
    images = []
    for part in parts:
        arch, kind = re.search(r'_(\w+)\.(cubin|ptx)$', part).groups()
        kind = 'elf' if kind == 'cubin' else 'ptx'
        images.append('--image3=kind=%s,sm=%s,file=%s' % (kind, arch, part))
    run([beside if os.path.exists(beside) else 'fatbinary', '-64', '--compress-all',
         '--create=' + out] + images)


def release(nvcc):
    """CUDA 12.8 is 12080, as the driver counts."""
    said = subprocess.run([nvcc, '--version'], stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r'release (\d+)\.(\d+)', said)
    return int(found[1]) * 1000 + int(found[2]) * 10 if found else 0


def embed(fatbin, out, nvcc=None):
    with open(fatbin, 'rb') as f:
        data = f.read()
    data += bytes(-len(data) % 8)
    words = ['0x%xu' % int.from_bytes(data[i:i + 8], 'little') for i in range(0, len(data), 8)]
    with open(out, 'w') as f:
        f.write('#include <stdint.h>\nextern const uint64_t xd_cuda_kernels[];\n'
                'extern const int xd_cuda_kernels_release;\n'
                'const int xd_cuda_kernels_release = %d;\n'
                'const uint64_t xd_cuda_kernels[] = {\n' % (release(nvcc) if nvcc else 0))
        for i in range(0, len(words), 8):
            f.write(','.join(words[i:i + 8]) + ',\n')
        f.write('};\n')


{'cubin': cubin, 'ptx': ptx, 'join': join, 'embed': embed}[sys.argv[1]](*sys.argv[2:])
