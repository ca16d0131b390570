#!/usr/bin/env python3
"""tiny.py XDIT ROOT FULL - files of tiny autoencoders without config: --vae and --preview_decoder
for videos (TAEHV) and images (TAEF2, TAESD), what they are refused for, and xdit inspect.

A file must give the result of a model whose folder `vae` has its weights and the config that the
file lacks. Speaks TAP."""

import array, json, math, os, pathlib, random, re, struct, subprocess, sys, tempfile

XDIT = os.path.abspath(sys.argv[1])
ROOT, FULL = (pathlib.Path(p).resolve() for p in sys.argv[2:4])
T = pathlib.Path(tempfile.mkdtemp())
RANDOM = random.Random(1)
WIDTHS, WIDE = [12, 8, 8, 8], 8
count = bad = 0


def report(good, what, *why):
    global count, bad
    count, bad = count + 1, bad + (not good)
    print('ok' if good else 'not ok', count, '-', what)
    for w in why if not good else ():
        print('# ' + str(w).replace('\n', '\n# '))


def write(path, shapes):
    """A safetensors file of random numbers."""
    head, data = {}, array.array('f')
    for name, shape in shapes.items():
        n, at = math.prod(shape), 4 * len(data)
        gain = 1.2 / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.3
        data.extend(RANDOM.uniform(-1, 1) * gain * 1.7 for _ in range(n))
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + 4 * n]}
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    path.write_bytes(struct.pack('<Q', len(text)) + text + data.tobytes())


def conv(name, out, into, side=3, bias=True):
    made = {name + '.weight': [out, into, side, side]}
    return made | {name + '.bias': [out]} if bias else made


def block(name, C, into=1):
    return {k: v for i in (0, 2, 4)
            for k, v in conv(f'{name}.conv.{i}', C, C if i else into * C).items()}


def factors(n, levels):
    """Factors of levels, the largest last."""
    made = []
    for left in range(levels, 0, -1):
        f = max(k for k in (1, 2, 3) if n % k == 0 and (left > 1 or k == n)) if n > 1 else 1
        made.append(f)
        n //= f
    return made[::-1]


def taehv(channels, cell):
    """Config and shapes of a TAEHV for latents of this many channels and these cells."""
    levels = min(3, cell[1].bit_length() - 1)
    p, grow = cell[1] >> levels, factors(cell[0], levels)
    c = {'_class_name': 'TAEHV', 'latent_channels': channels, 'patch_size': p,
         'encoder_channels': WIDE, 'layers_per_block': 3,
         'decoder_block_out_channels': WIDTHS[:levels + 1], 'decoder_time_upscale': grow,
         'encoder_time_downscale': grow[::-1]}
    made, at = conv('decoder.1', WIDTHS[0], channels), 3
    for n, C, after in zip(grow, WIDTHS, WIDTHS[1:]):
        for i in range(3):
            made |= block(f'decoder.{at + i}', C, 2)
        made |= conv(f'decoder.{at + 4}.conv', n * C, C, 1, False)
        made |= conv(f'decoder.{at + 5}', after, C, bias=False)
        at += 6
    made |= conv(f'decoder.{at + 1}', 3 * p * p, WIDTHS[levels])
    made |= conv('encoder.0', WIDE, 3 * p * p)
    at = 2
    for n in grow[::-1]:
        made |= conv(f'encoder.{at}.conv', WIDE, n * WIDE, 1, False)
        made |= conv(f'encoder.{at + 1}', WIDE, WIDE, bias=False)
        for i in range(3):
            made |= block(f'encoder.{at + 2 + i}', WIDE, 2)
        at += 5
    return c, made | conv(f'encoder.{at}', channels, WIDE)


def taesd(channels, side, norm, own=False):
    """Config and shapes of a TAESD with cells of `side` pixels; norm: of a TAEF2."""
    levels, C, made = side.bit_length(), 8, {}
    c = {'_class_name': 'AutoencoderTiny', 'latent_channels': channels, 'use_midblock_gn': norm,
         'latent_pack': 2 if norm else 1, 'tensor_names': 'taesd' if own else '',
         **{f'{half}_block_out_channels': [C] * levels for half in ('encoder', 'decoder')},
         **{f'num_{half}_blocks': [1] * levels for half in ('encoder', 'decoder')}}

    def named(half, at):
        return str(at + 1) if own else f'{half}.layers.{at}'

    def with_norm(name):
        made = conv(name + '.pool.0', 4 * C, C, 1, False)
        made |= {f'{name}.pool.1.{k}': [4 * C] for k in ('weight', 'bias')}
        return made | conv(name + '.pool.3', C, 4 * C, 1, False)
    for half, at in (('decoder', 2), ('encoder', 1)):
        dec = half == 'decoder'
        if own and not dec:
            continue
        made |= conv(named(half, 0), C, channels if dec else 3)
        for level in range(levels):
            made |= block(named(half, at), C)
            if norm and level == (0 if dec else levels - 1):
                made |= with_norm(named(half, at))
            if level == levels - 1:
                made |= conv(named(half, at + 1), 3 if dec else channels, C)
                break
            made |= conv(named(half, at + 1 + dec), C, C, bias=False)
            at += 2 + dec
    return c, made


def generate(model, *more, frames=0, out='out.rgb', size=('64', '64')):
    """The pixels, or None, and what the program prints."""
    path = T / out
    path.unlink(missing_ok=True)
    r = subprocess.run([XDIT, 'generate', '--model', str(model), '--prompt', 'a', '--seed', '3',
                        '--num_inference_steps', '2', '--height', size[0], '--width', size[1],
                        '--dtype', 'f32', *(['--num_frames', str(frames)] if frames else []),
                        '--output', str(path), *more], capture_output=True, timeout=280,
                       check=False)
    return (path.read_bytes() if path.exists() else None), r.stderr.decode()


def with_vae(model, config, file):
    """A copy of a model with a tiny autoencoder in its folder."""
    copy = T / ('with-' + model)
    if not copy.exists():
        (copy / 'vae').mkdir(parents=True)
        for path in (FULL / model).iterdir():
            if path.name != 'vae':
                (copy / path.name).symlink_to(path)
    (copy / 'vae/config.json').write_text(json.dumps(config))
    (copy / 'vae/diffusion_pytorch_model.safetensors').write_bytes(file.read_bytes())
    index = json.loads((FULL / model / 'model_index.json').read_text())
    index['vae'] = ['diffusers', config['_class_name']]
    (copy / 'model_index.json').unlink(missing_ok=True)
    (copy / 'model_index.json').write_text(json.dumps(index))
    return copy


def needs(model):
    """Channels and cell of a model's latents, as a file for other latents is told."""
    _, said = generate(FULL / model, '--vae', str(T / 'other.safetensors'))
    m = re.search(r'other.safetensors decodes latents of 5 channels and cells of 1 x 2 x 2 '
                  r'\(frames, rows, columns\), but those of \S+ have (\d+) channels and cells of '
                  r'(\d+) x (\d+) x \d+: give a decoder', said)
    report(m, model + ': a file for other latents', said)
    return (int(m[1]), (int(m[2]), int(m[3]))) if m else (1, (1, 8))


def near(a, b, most):
    return a and b and len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= most


# Model, frames, further flags, and members of the config that the model's own VAE has.
VIDEOS = [
    ('wan', 9, [], {}), ('wan-ti2v', 5, [], {}), ('hunyuanvideo', 5, [], {}),
    ('hunyuanvideo15', 5, [], {}), ('mochi', 13, [], {}), ('ltx', 9, [], {}),
    ('minimaxh3', 9, [], None), ('cog5b', 9, [], {'first_frame_alone': False,
                                                 'scaling_factor': 0.7}),
    ('wan-i2v', 5, ['--image', str(ROOT / 'tests/golden/wan-i2v/image.png')], {}),
    ('vace', 5, [], {})]


def video(model, frames, more, own):
    channels, cell = needs(model)
    config, shapes = taehv(channels, cell)
    file = T / (model + '.safetensors')
    write(file, shapes)
    got, said = generate(FULL / model, '--vae', str(file), *more, frames=frames)
    report(got and len(set(got)) > 8, f'{model}: --vae', said)
    if own is not None:
        want, said = generate(with_vae(model, config | own, file), *more, frames=frames)
        report(got == want, f'{model}: the config of the file', said)
    for ranks in ('2', '3') if model in ('wan', 'ltx') else ('2',):
        split, said = generate(FULL / model, '--vae', str(file), '--nproc', ranks,
                               '--ulysses_degree', ranks, '--use_parallel_vae', *more,
                               frames=frames)
        report(near(split, got, 1), f'{model}: {ranks} ranks', said)


def images():
    for model, pair in (('flux2-klein', lambda n, f: taesd(n // 4, f // 2, True)),
                        ('flux', lambda n, f: taesd(n, f, False)),
                        ('sd3', lambda n, f: taesd(n, f, False, own=True))):
        channels, cell = needs(model)
        config, shapes = pair(channels, cell[1])
        file = T / (model + '.safetensors')
        write(file, shapes)
        got, said = generate(FULL / model, '--vae', str(file), out='out.ppm')
        want, why = generate(with_vae(model, config, file), out='out.ppm')
        n = 64 * 64 * 3
        report(got and want and got[-n:] == want[-n:] and len(set(got[-n:])) > 8,
               f'{model}: --vae and its config', said, why)
        split, said = generate(FULL / model, '--vae', str(file), '--use_parallel_vae',
                               '--ulysses_degree', '2', out='out.ppm')
        report(near(split[-n:] if split else None, got[-n:], 1), f'{model}: two ranks', said)
    channels, cell = needs('qwen')
    write(T / 'qwen.safetensors', taehv(channels, (4, cell[1]))[1])
    config = taehv(channels, (4, cell[1]))[0] | {'images': True}
    got, said = generate(FULL / 'qwen', '--vae', str(T / 'qwen.safetensors'), out='out.ppm')
    want, why = generate(with_vae('qwen', config, T / 'qwen.safetensors'), out='out.ppm')
    n = 64 * 64 * 3
    report(got and want and got[-n:] == want[-n:], 'qwen: a TAEHV for single images', said, why)


def previews():
    """The last step's preview of a video is its first frame."""
    for model, frames in (('wan', 9), ('cog5b', 9), ('flux2-klein', 0)):
        file, seen = T / (model + '.safetensors'), T / 'seen.ppm'
        kind, n = 'out.rgb' if frames else 'out.ppm', 64 * 64 * 3
        got, said = generate(FULL / model, '--vae', str(file), '--preview', str(seen),
                             '--preview_every', '2', '--preview_decoder', str(file),
                             frames=frames, out=kind)
        first = (got or b'')[:n] if frames else (got or b'')[-n:]
        report(got and seen.exists() and near(seen.read_bytes()[-n:], first, 2),
               f'{model}: a preview is decoded', said)
        seen.unlink(missing_ok=True)
        plain, said = generate(FULL / model, '--preview', str(seen), '--preview_every', '2',
                               '--preview_decoder', str(file), frames=frames, out=kind)
        report(plain and plain != got and near(seen.read_bytes()[-n:], first, 2),
               f'{model}: with its own VAE', said)
        seen.unlink(missing_ok=True)


def refused(what, text, *flags, model='wan'):
    got, said = generate(FULL / model, *flags)
    report(got is None and text in said and said.count('\n') == 1, what, said)


def refusals():
    wan, other = str(T / 'wan.safetensors'), str(T / 'other.safetensors')
    pickle = T / 'taew2_1.pth'
    pickle.write_bytes(b'PK\3\4' + bytes(60))
    for flag in ('--vae', '--preview_decoder'):
        refused(f'{flag} of a pickle', 'taew2_1.pth is a PyTorch pickle, not safetensors: ', flag,
                str(pickle))
        refused(f'{flag} for other latents', 'but those of', flag, other)
    refused('alpha', 'which decodes colours and alpha: omit --vae', '--vae',
            str(T / 'layered.safetensors'), model='qwen-layered')
    refused('no tiny autoencoder', 'is no tiny autoencoder', '--preview_decoder',
            str(FULL / 'wan/vae/diffusion_pytorch_model.safetensors'))
    refused('a latent upsampler', 'needs the mean and deviation of latents', '--vae',
            str(T / 'ltx-up.safetensors'), '--latent_upsampler',
            str(FULL / 'ltx-up/latent_upsampler'), model='ltx-up')
    refused('an encoder that is absent', 'has no encoder, so no images can be encoded', '--vae',
            str(T / 'half.safetensors'), '--image', str(ROOT / 'tests/golden/wan-i2v/image.png'),
            model='wan-i2v')
    got, said = generate(FULL / 'wan', '--vae', wan, '--enable_tiling', frames=5,
                         size=('64', '64'))
    report(got, 'tiles', said)
    for name, what in (('wan', 'a tiny autoencoder of videos (TAEHV)'),
                       ('sd3', 'the decoder of a tiny autoencoder (TAESD)'),
                       ('flux2-klein', 'a tiny autoencoder in the layout of diffusers')):
        r = subprocess.run([XDIT, 'inspect', '--model', str(T / (name + '.safetensors'))],
                           capture_output=True, text=True, timeout=60, check=False)
        report(what in r.stdout, 'inspect: ' + what, r.stdout, r.stderr)


write(T / 'other.safetensors', taesd(5, 2, False)[1])
for row in VIDEOS:
    video(*row)
images()
channels_of, cell_of = needs('qwen-layered')
write(T / 'layered.safetensors', taehv(channels_of, (4, cell_of[1]))[1])
write(T / 'ltx-up.safetensors', taehv(*needs('ltx-up'))[1])
write(T / 'half.safetensors', {k: v for k, v in taehv(*needs('wan-i2v'))[1].items()
                               if k.startswith('decoder')})
previews()
refusals()
print(f'1..{count}')
subprocess.run(['rm', '-rf', T], check=False)
sys.exit(bad > 0)
