#!/usr/bin/env python3
"""names.py XDIT ROOT - names that hold quotes, backslashes, control characters and bytes that are
not UTF-8, of tensors, classes, schedulers, directories, files, prompts and LoRAs: nothing that a
terminal obeys is printed, and JSON stays JSON. Speaks TAP."""

import json, os, pathlib, shutil, struct, subprocess, sys, tempfile

XDIT, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
DEMO = ROOT / 'models' / 'demo-pixart'
T = os.fsencode(tempfile.mkdtemp())
ODD = 'a"b\\c\x1b[31m\td\x7f\x9b31m\u00e9'  # U+009B begins a terminal's command as ESC [ does
BYTES = ODD.encode() + b'\xff\xc3'
NAMES = [ODD.encode(), BYTES]
count = bad = 0


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print('%sok %d - %s' % ('' if ok else 'not ', count, what))
    if not ok:
        for m in more:
            print('#', repr(m)[:2000])


def plain(b):
    try:
        return all(c == '\n' or not (ord(c) < 32 or 127 <= ord(c) < 160) for c in b.decode())
    except UnicodeDecodeError:
        return False


def run(*args, stdin=b''):
    p = subprocess.run([XDIT, *args], input=stdin, capture_output=True, timeout=60)
    return p.returncode, p.stdout, p.stderr


def clean(what, code, *args, has=b'31m'):
    """Ends with that code, says the odd name, and nothing else than text."""
    rc, out, err = run(*args)
    report(rc == code and plain(out) and plain(err) and has in out + err, what, rc, out, err)
    return out


def as_json(what, code, *args):
    out = clean(what, code, *args)
    try:
        j = json.loads(out)
    except ValueError as e:
        report(False, what + ': JSON', str(e), out)
        return {}
    report(True, what + ': JSON')
    return j


def header(path, change):
    """Rewrites the header of a safetensors file as bytes."""
    b = open(path, 'rb').read()
    (n,) = struct.unpack('<Q', b[:8])
    raw = change(b[8 : 8 + n])
    open(path, 'wb').write(struct.pack('<Q', len(raw)) + raw + b[8 + n :])


def quoted(name):
    """A JSON string whose bytes need not be UTF-8."""
    return (
        b'"'
        + b''.join(
            b'\\' + bytes([c]) if c in b'"\\' else b'\\u%04x' % c if c < 32 else bytes([c])
            for c in name
        )
        + b'"'
    )


def edit(d, name, key, value):
    path = os.path.join(d, name)
    text = open(path, 'rb').read().rstrip()
    open(path, 'wb').write(text[:-1] + b', ' + quoted(key) + b': ' + quoted(value) + b'}')


def model(name):
    d = os.path.join(T, name)
    shutil.copytree(os.fsencode(DEMO), d)
    subprocess.run(['chmod', '-R', 'u+w', d], check=True)
    return d


try:
    weights = b'transformer/diffusion_pytorch_model.safetensors'
    inner = ODD.encode()  # JSON files hold UTF-8 alone
    for odd in NAMES:
        d = model(b'm' + odd)
        edit(d, b'scheduler/scheduler_config.json', b'_class_name', inner)
        edit(d, b'transformer/config.json', b'_class_name', inner)
        edit(d, b'vae/config.json', inner, inner)
        header(
            os.path.join(d, weights), lambda h: h.replace(b'"pos_embed.proj.bias"', quoted(inner))
        )
        kind = 'UTF-8' if odd == NAMES[0] else 'any bytes'
        clean('inspect, ' + kind, 1, 'inspect', d)
        j = as_json('inspect --json, ' + kind, 1, 'inspect', d, '--json')
        of = {c['component']: c for c in j.get('components', [])}
        report(of and of['transformer']['class'] == ODD, 'its class, ' + kind, of)
        report(of and of['scheduler']['class'] == ODD, 'its scheduler, ' + kind, of)
        report(
            len(j.get('missing', [])) == 1, 'what is missing is listed, ' + kind, j.get('missing')
        )
        f = os.path.join(d, weights)
        clean('inspect a file, ' + kind, 0, 'inspect', f, has=b'PixArt')
        clean('its tensors, ' + kind, 0, 'inspect', f, '--tensors', 'x')
        j = as_json('its tensors as JSON, ' + kind, 0, 'inspect', f, '--tensors', 'x', '--json')
        report(ODD in [t['name'] for t in j.get('tensors', [])], 'the odd one is there, ' + kind)
        as_json('inspect a file as JSON, ' + kind, 0, 'inspect', f, '--json')
        ask = ['-p', 'a', '--steps', '1', '-v']
        clean('generate -v, ' + kind, 1, 'generate', '-m', d, '-o', os.path.join(T, b'x.png'), *ask)
        clean('plan, ' + kind, 1, 'plan', '-m', d, '--world', '2')
        shutil.rmtree(d)
        d = model(b'm' + odd)
        edit(d, b'vae/config.json', inner, inner)
        clean(
            'a key of a config, ' + kind,
            0,
            'generate',
            '-m',
            d,
            '-o',
            os.path.join(T, b'x.png'),
            *ask
        )
        edit(d, b'scheduler/scheduler_config.json', b'prediction_type', inner)
        clean(
            'a value of a config, ' + kind,
            1,
            'generate',
            '-m',
            d,
            '-o',
            os.path.join(T, b'x.png'),
            *ask
        )
        shutil.rmtree(d)
        lora = os.path.join(T, b'lora' + odd)
        shutil.copy(os.path.join(os.fsencode(DEMO), weights), lora)
        header(lora, lambda h: h.replace(b'"pos_embed.proj.bias"', quoted(inner)))
        for args in (
            ['--lora', lora],
            ['--lora', b'no' + odd],
            ['--lora', lora + b':x'],
            ['--scheduler', odd],
            ['-o', os.path.join(T, odd)],
            ['--plan', odd],
            ['--dtype', odd],
            ['--' + os.fsdecode(odd)],
            ['--cluster', odd],
            ['--vae', odd],
            [odd],
        ):
            rc, out, err = run(
                'generate', '-m', DEMO, '-p', 'a', '-q', '-o', os.path.join(T, b'x.png'), *args
            )
            report(
                rc in (1, 2) and plain(out) and plain(err) and b'31m' in err,
                'generate %s, %s'
                % (
                    os.fsdecode(args[0])[:8] if args[0][:2] == '--' and len(args) > 1 else 'of it',
                    kind,
                ),
                rc,
                out,
                err,
            )
        clean('a command, ' + kind, 2, odd)
        clean('before the command, ' + kind, 2, b'-' + odd)
        word = b"'" + odd + b"'"
        for line in (
            b'torchrun --nproc_per_node=2 examples/flux_example.py --model %s --prompt %s',
            b'xdit --model %s --prompt %s',
            b'torchrun --nproc_per_node=2 examples/%s.py --model %s',
            b'A=%s; torchrun --nproc_per_node=2 $A$%s',
            b'torchrun --nproc_per_node=2 examples/flux_example.py --model m --%s %s',
            b'%s %s',
        ):
            rc, out, err = run('from-xdit', line % (word, word))
            report(
                rc in (0, 1, 2) and plain(out) and plain(err) and out + err,
                'from-xdit, %s: %s' % (kind, line.decode()),
                rc,
                out,
                err,
            )
        rc, out, err = run(
            'generate', '-m', DEMO, '-p', odd, '-v', '--steps', '1', '-o', os.path.join(T, b'p.png')
        )
        taken = 0 if odd == NAMES[0] else 2  # a prompt is UTF-8
        report(rc == taken and plain(out) and plain(err), 'a prompt, ' + kind, rc, out, err)
        rc, out, err = run(
            'generate', '-m', DEMO, '-p', odd * 40, '--steps', '1', '-o', os.path.join(T, b'p.png')
        )
        report(
            rc == taken and plain(out) and plain(err), 'a prompt that is cut, ' + kind, rc, out, err
        )
        rc, out, err = run(
            'generate',
            '-m',
            DEMO,
            '-p',
            NAMES[0],
            '--steps',
            '1',
            '-q',
            '--json',
            '-o',
            os.path.join(T, odd + b'.png'),
        )
        report(
            rc == 0 and plain(out) and json.loads(out)['file'].endswith('.png'),
            'generate --json, ' + kind,
            rc,
            out,
            err,
        )
finally:
    shutil.rmtree(T, ignore_errors=True)
print('1..%d' % count)
sys.exit(bad > 0)
