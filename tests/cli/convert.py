#!/usr/bin/env python3
"""convert.py COMMAND ... - what tests/cli/convert.sh needs beside the program.

  tensors DIR                the tensors of all files below DIR: "component name type shape place"
  same A B                   the tensors of B have the names, shapes and numbers of those of A
  near A B LEVELS            the bytes of two files differ by so many levels at most
  layout DIR COMPONENT N     N matrices of int8 have their scales and their formats
  q8 IN.safetensors OUT.gguf a GGUF file: matrices as Q8_0 where rows are whole blocks, else as F32
  large DIR ROWS             gives a T5 text encoder an embedding of so many rows, most a hole
  most KILOBYTES COMMAND...  runs it; fails where it takes more memory
"""

import json, pathlib, resource, struct, subprocess, sys

SIZES = {'F32': 4, 'BF16': 2, 'F16': 2, 'I8': 1, 'U8': 1, 'I64': 8, 'F8_E4M3': 1}


def read(path):
    """name -> (type, shape, bytes) of a file, and where its data begin."""
    data = path.read_bytes()
    size, = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + size])
    header.pop('__metadata__', None)
    return {n: (t['dtype'], t['shape'], data[8 + size:][slice(*t['data_offsets'])],
                8 + size + t['data_offsets'][0]) for n, t in header.items()}


def tensors(root):
    found = {}
    for path in sorted(pathlib.Path(root).glob('*/*.safetensors')):
        for name, tensor in read(path).items():
            key = path.parent.name + ' ' + name
            assert key not in found, key + ' stands in two files'
            found[key] = tensor
    return found


def numbers(kind, data):
    if kind == 'BF16':
        return struct.unpack('<%df' % (len(data) // 2), b''.join(
            b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2)))
    return struct.unpack('<%d%s' % (len(data) // SIZES[kind], {'F32': 'f', 'F16': 'e', 'I8': 'b',
                                                               'U8': 'B', 'I64': 'q'}[kind]), data)


def same(a, b):
    a, b = tensors(a), tensors(b)
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())[:5]
    for name, (kind, shape, data, _) in a.items():
        other = b[name]
        assert shape == other[1], name
        assert kind == other[0] and data == other[2] or \
            numbers(kind, data) == numbers(other[0], other[2]), name


def near(a, b, levels):
    gap = max(abs(x - y) for x, y in zip(pathlib.Path(a).read_bytes(), pathlib.Path(b).read_bytes(),
                                         strict=True))
    print('# %d levels apart' % gap)
    assert gap <= levels, gap


def layout(root, component, matrices):
    """Every matrix of integers has its scales, and its format in the header."""
    found = {n: t for n, t in tensors(root).items() if n.startswith(component + ' ')}
    integers = {n for n, t in found.items() if t[0] == 'I8'}
    assert len(integers) == matrices, len(integers)
    for name in integers:
        kind, shape, _, _ = found[name + '_scale']
        assert (kind, shape) == ('F32', [found[name][1][0], 1]), name
    path, = pathlib.Path(root, component).glob('*.safetensors')
    data = path.read_bytes()
    header = json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]])
    formats = json.loads(header['__metadata__']['_quantization_metadata'])
    assert formats['format_version'] == '1.0'
    assert formats['layers'] == {n.split(' ')[1][:-len('.weight')]: {'format': 'int8_tensorwise'}
                                 for n in integers}


def q8_rows(values):
    """Blocks of 32 numbers: a scale in f16, and integers."""
    out = bytearray()
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        scale = struct.unpack('<e', struct.pack('<e', max(map(abs, block)) / 127))[0]
        out += struct.pack('<e', scale)
        out += struct.pack('32b', *(max(-127, min(127, round(v / scale))) if scale else 0
                                    for v in block))
    return bytes(out)


def text(s):
    return struct.pack('<Q', len(s)) + s.encode()


def q8(source, target):
    """Version 3 of the container; dimensions are stored from the last to the first."""
    infos, datas, at = b'', [], 0
    source = read(pathlib.Path(source))
    for name, (kind, shape, data, _) in source.items():
        values = numbers(kind, data)
        whole = len(shape) == 2 and shape[1] % 32 == 0
        data = q8_rows(values) if whole else struct.pack('<%df' % len(values), *values)
        shape = shape or [1]
        infos += text(name) + struct.pack('<I', len(shape))
        infos += struct.pack('<%dQ' % len(shape), *reversed(shape))
        infos += struct.pack('<IQ', 8 if whole else 0, at)
        datas.append(data + bytes(-len(data) % 32))
        at += len(datas[-1])
    head = b'GGUF' + struct.pack('<IQQ', 3, len(source), 1)
    head += text('general.architecture') + struct.pack('<I', 8) + text('flux') + infos
    pathlib.Path(target).write_bytes(head + bytes(-len(head) % 32) + b''.join(datas))


def large(root, rows):
    """The file has its numbers of the first rows only."""
    folder = pathlib.Path(root) / 'text_encoder'
    config = json.loads((folder / 'config.json').read_text())
    config['vocab_size'] = rows
    (folder / 'config.json').write_text(json.dumps(config))
    path = folder / 'model.safetensors'
    had = read(path)
    rest = {n: t for n, t in had.items() if n != 'shared.weight'}
    header, at = {}, 0
    for name, (kind, shape, data, _) in rest.items():
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    cols = had['shared.weight'][1][1]
    header['shared.weight'] = {'dtype': 'F32', 'shape': [rows, cols],
                               'data_offsets': [at, at + 4 * rows * cols]}
    head = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head + b''.join(t[2] for t in rest.values()))
        f.write(struct.pack('<%df' % cols, *(0.5 for _ in range(cols))))
        f.truncate(8 + len(head) + at + 4 * rows * cols)


def most(kilobytes, command):
    code = subprocess.call(command, stdout=subprocess.DEVNULL)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print('# %d kB of %d' % (took, kilobytes))
    return code or took > kilobytes


def main():
    command, args = sys.argv[1], sys.argv[2:]
    if command == 'tensors':
        for name, (kind, shape, _, at) in sorted(tensors(args[0]).items()):
            print(name, kind, 'x'.join(map(str, shape)) or 'scalar', at)
    elif command == 'same':
        same(*args)
    elif command == 'near':
        near(args[0], args[1], int(args[2]))
    elif command == 'layout':
        layout(args[0], args[1], int(args[2]))
    elif command == 'q8':
        q8(*args)
    elif command == 'large':
        large(args[0], int(args[1]))
    elif command == 'most':
        return most(int(args[0]), args[1:])
    else:
        return 2
    return 0


sys.exit(main())
