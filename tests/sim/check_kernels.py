#!/usr/bin/env python3
"""check_kernels.py ROOT [--write] LOG...

Checks what nvcc made of the kernels, for every architecture: the logs of ptxas name registers,
shared memory and spills; the SASS of the cubins beside them (nvdisasm, where there is one) shows
that the kernels for tensor cores use them and have no local memory. Compares the table of
doc/internals/cuda.md with that, or writes it (--write).
"""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys

SPILL = 0                       # bytes
REGISTERS = {'flash_256': 255, 'flash_192': 248, 'flash_128': 255, 'flash_96': 255,
             'flash_80': 255, 'flash_64': 255, 'flash_64_bias': 255, 'conv': 152, 'norm_16': 255,
             'norm_12': 168, 'norm_8': 128, 'norm_5': 72, 'attention_any': 144,
             'attention_wide': 200, 'qknorm_any': 88, 'moments_wide': 80, 'qknorm_32': 80,
             'qknorm_64': 80, 'qknorm_128': 80, 'integers_wide': 128, 'norm_5_e4m3': 128,
             'norm_wide': 80, 'norm_wide_e4m3': 80,
             'norm_8_e4m3': 168, 'norm_12_e4m3': 255, 'norm_16_e4m3': 255, 'linattn_sums': 72,
             'linattn_out': 80}
OTHERS = 64                     # registers of the kernels not named above
SASS = 5500                     # instructions of a kernel
LONGEST = {'conv': 2500, 'flash_256': 6400, 'attention_wide': 6400, 'norm_12': 7000,
           'norm_16': 9000}     # of those that have another limit
BEGIN, END = '<!-- kernels: begin -->\n', '<!-- kernels: end -->\n'


def basis(kernel):
    """The kernel whose code for f16 or results of e4m3 this one is, or the kernel itself."""
    return kernel.removesuffix('_f16').removesuffix('_e4m3')


class Tap:
    n = failed = 0

    def check(self, ok, name, *notes):
        self.n += 1
        self.failed += not ok
        print('%sok %d - %s' % ('' if ok else 'not ', self.n, name))
        for note in notes if not ok else ():
            print('# ' + str(note))

    def skip(self, name, why):
        self.n += 1
        print('ok %d - %s # SKIP %s' % (self.n, name, why))


def usage(log):
    """{kernel: (registers, static shared memory, spilled bytes)} of a log of ptxas."""
    with open(log) as f:
        text = f.read()
    found = {}
    for part in text.split('Compiling entry function ')[1:]:
        name = part[1:part.index("'", 1)]
        spills = re.search(r'(\d+) bytes stack frame, (\d+) bytes spill stores, '
                           r'(\d+) bytes spill loads', part)
        shared = re.search(r'(\d+) bytes smem', part)
        found[name] = (int(re.search(r'Used (\d+) registers', part)[1]),
                       int(shared[1]) if shared else 0, sum(map(int, spills.groups())))
    return found


def nvdisasm():
    homes = [os.environ.get('CUDA_HOME', '/usr/local/cuda') + '/bin']
    for path in sys.path:
        homes += glob.glob(os.path.join(path, 'nvidia', '*', 'bin'))
    return shutil.which('nvdisasm') or shutil.which('nvdisasm', path=os.pathsep.join(homes))


def sass(tool, cubin):
    """{kernel: [opcode with its suffixes]} of a cubin."""
    text = subprocess.run([tool, '-c', cubin], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    found = {}
    for part in re.split(r'\.section\s+\.text\.', text)[1:]:
        name = re.match(r'\w+', part)[0]
        found[name] = re.findall(r'/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)', part)
    return found


def count(ops, head, suffix=''):
    return sum(op.split('.')[0] == head and suffix in op for op in ops)


def flash_products(kernel):
    """Products of 16 x 8 x 16 of a warp of `flash`, of 16 or 32 queries and a tile of keys."""
    d, keys = int(kernel.split('_')[1]), 64 if kernel == 'flash_64' else 32
    return 2 * (keys // 8) * (d // 16) * (2 if d <= 128 else 1)


def kernels_of(root):
    """{kernel: bytes of dynamic shared memory} of the engine's list of kernels."""
    with open(os.path.join(root, 'src/backend/cuda/cuda.h')) as f:
        text = f.read()
    plain = dict(re.findall(r'define (XD_CUDA_\w+_SHARED)\s+(\(.*?\))\s', text))
    flash = {name: (two, size) for name, two, size in
             re.findall(r'define (XD_CUDA_FLASH\w*_SHARED)\(d, (\w+)\) (\(.*\))\s', text)}
    rows = re.search(r'define XD_CUDA_KERNELS\(X\)(.*?)#define', text, re.S)[1]
    found = {}
    for name, size in re.findall(r'X\((\w+), (.*?)\)(?=\s|$)', rows, re.S):
        size = plain.get(size, size)
        size = re.sub(r'(XD_CUDA_FLASH\w*)\((\d+), (\d+)\)',
                      lambda m: flash[m[1]][1].replace('(d)', m[2]).replace(
                          '(%s)' % flash[m[1]][0], m[3]), size)
        found[name] = eval(size, {'__builtins__': {}})
    return found


def check_usage(tap, arch, use, shared):
    tap.check(set(use) == set(shared), 'sm_%s has the kernels that the engine launches' % arch,
              set(use) ^ set(shared))
    bad = [(k, u) for k, u in use.items() if u[2] > SPILL]
    tap.check(not bad, 'sm_%s spills nothing' % arch, *bad)
    bad = [(k, u) for k, u in use.items()
           if u[0] > REGISTERS.get(k, REGISTERS.get(basis(k), OTHERS))]
    tap.check(not bad, 'sm_%s keeps the limits of registers' % arch, *bad)
    bad = [(k, u) for k, u in use.items() if u[1] + shared.get(k, 0) > 99 << 10]
    tap.check(not bad, 'sm_%s has the shared memory of every kernel' % arch, *bad)


def check_sass(tap, arch, code):
    bad = [k for k in code if count(code[k], 'LDL') + count(code[k], 'STL')]
    tap.check(not bad, 'sm_%s uses no local memory' % arch, *bad)
    for k in sorted(code):
        if k.startswith('flash_') or basis(k) == 'conv':
            halves = count(code[k], 'HMMA', '16816.F32.BF16')
            if k != basis(k):
                halves = count(code[k], 'HMMA', '16816.F32') - halves
            n = [halves, count(code[k], 'LDSM', 'M88.4'),
                 count(code[k], 'LDGSTS', '128'), count(code[k], 'LDGSTS')]
            want = flash_products(basis(k)) if basis(k) != 'conv' else 32
            tap.check(n[0] == want and n[1] > 0 and n[2] == n[3] > 0,
                      'sm_%s %s: tensor cores, ldmatrix, cp.async of 16 bytes' % (arch, k), n)
        if basis(k) in ('norm_5', 'norm_8', 'norm_12', 'norm_16', 'norm_wide'):
            tap.check(count(code[k], 'LDG') == count(code[k], 'LDG', '128') > 0,
                      'sm_%s %s: all loads of 16 bytes' % (arch, k))
    bad = [(k, len(code[k])) for k in code
           if len(code[k]) > LONGEST.get(basis(k), SASS)]
    tap.check(not bad, 'sm_%s: no kernel is unrolled too far' % arch, *bad)


def table(uses, codes, shared, said):
    """The lines of the table; without SASS the last columns are empty."""
    archs = list(uses)
    code = codes.get('90a', {})
    out = ['The table was made with %s.\n' % said, '\n',
           '| kernel | registers ' + ' / '.join(archs) + ' | shared, bytes | SASS of 90a | '
           'HMMA | LDSM | LDGSTS | LDG, of 16 bytes |\n', '|---' * 8 + '|\n']
    for k in shared:
        row = [k, ' / '.join(str(uses[a][k][0]) for a in archs), shared[k]]
        ops = code.get(k)
        row += [len(ops), count(ops, 'HMMA'), count(ops, 'LDSM'), count(ops, 'LDGSTS'),
                '%d, %d' % (count(ops, 'LDG'), count(ops, 'LDG', '128'))] if ops else [''] * 5
        out.append('| ' + ' | '.join(map(str, row)) + ' |\n')
    return out


def columns(lines, n):
    return [[c.strip() for c in line.split('|')[1:1 + n]] for line in lines if '|' in line]


def check_table(tap, doc, lines, has_sass, write):
    name = 'the table of doc/internals/cuda.md'
    with open(doc) as f:
        text = f.read()
    head, rest = text.split(BEGIN)
    old, tail = rest.split(END)
    old = old.splitlines(keepends=True)
    if write:
        with open(doc, 'w') as f:
            f.write(head + BEGIN + ''.join(lines) + END + tail)
    elif not old or old[0] != lines[0]:
        tap.skip(name, 'it was ' + (old[0].strip().lower() if old else 'never written'))
    else:
        n = 8 if has_sass else 3
        bad = [r for r in zip(columns(lines, n), columns(old, n)) if r[0] != r[1]]
        tap.check(not bad and len(old) == len(lines), name, 'now, and there:', *bad)


def main():
    root, args = sys.argv[1], sys.argv[2:]
    write = '--write' in args
    logs = [a for a in args if a != '--write']
    if not logs:
        print('1..0 # SKIP this build has no nvcc')
        return 0
    tap, tool, shared = Tap(), nvdisasm(), kernels_of(root)
    uses, codes = collections.OrderedDict(), {}
    for log in logs:
        arch = re.search(r'_(\w+)\.log$', log)[1]
        uses[arch] = usage(log)
        check_usage(tap, arch, uses[arch], shared)
        if tool:
            codes[arch] = sass(tool, log[:-4] + '.cubin')
            check_sass(tap, arch, codes[arch])
        else:
            tap.skip('SASS of sm_' + arch, 'there is no nvdisasm to read it')
    version = subprocess.run([os.environ.get('NVCC', 'nvcc'), '--version'],
                             stdout=subprocess.PIPE, text=True).stdout
    said = 'nvcc ' + re.search(r'release [\d.]+, V([\d.]+)', version)[1]
    check_table(tap, os.path.join(root, 'doc/internals/cuda.md'),
                table(uses, codes, shared, said), bool(tool), write)
    print('1..%d' % tap.n)
    return tap.failed > 0


if __name__ == '__main__':
    sys.exit(main())
