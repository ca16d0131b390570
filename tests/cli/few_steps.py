#!/usr/bin/env python3
"""few_steps.py XDIT ROOT FULL - every row of the table in doc/few-steps.md: its flags on a tiny
model of the family, with a tiny LoRA file that has the tensor names of the file in the table.
Speaks TAP."""

import json, os, pathlib, random, re, struct, subprocess, sys, tempfile

XDIT = os.path.abspath(sys.argv[1])
ROOT, FULL = map(pathlib.Path, sys.argv[2:4])
T = pathlib.Path(tempfile.mkdtemp())
RANK = 3
count = bad = 0

# A file's form: before a module, ends of its two matrices, ends of other tensors.
PEFT = ('transformer.', '.lora_A.weight', '.lora_B.weight', ())
UNET_PEFT = ('unet.', '.lora_A.weight', '.lora_B.weight', ())
LIGHTNING = ('', '.lora_down.weight', '.lora_up.weight', ('alpha',))
PLAIN_COMFY = ('diffusion_model.', '.lora_A.weight', '.lora_B.weight', ())
COMFY = ('diffusion_model.', '.lora_down.weight', '.lora_up.weight', ('alpha', 'diff_b'))
KOHYA = ('lora_unet_', '.lora_down.weight', '.lora_up.weight', ('alpha',))

FLUX = ['x_embedder', 'context_embedder', 'transformer_blocks.0.attn.to_q',
        'transformer_blocks.0.attn.add_k_proj', 'transformer_blocks.0.ff.net.2',
        'transformer_blocks.0.norm1.linear', 'single_transformer_blocks.0.proj_mlp',
        'single_transformer_blocks.0.norm.linear', 'norm_out.linear', 'proj_out']
FLUX2 = ['transformer_blocks.0.attn.to_q', 'transformer_blocks.0.attn.to_out.0',
         'single_transformer_blocks.0.attn.to_qkv_mlp_proj',
         'single_transformer_blocks.0.attn.to_out']
QWEN = ['transformer_blocks.0.' + m for m in (
    'attn.to_q', 'attn.to_k', 'attn.to_v', 'attn.to_out.0', 'attn.add_q_proj', 'attn.add_k_proj',
    'attn.add_v_proj', 'attn.to_add_out', 'img_mlp.net.0.proj', 'img_mlp.net.2',
    'txt_mlp.net.0.proj', 'txt_mlp.net.2', 'img_mod.1', 'txt_mod.1')]
ATTENTION = (('q', 'to_q'), ('k', 'to_k'), ('v', 'to_v'), ('o', 'to_out.0'))
WAN = dict([(f'blocks.0.{a}.{o}', f'blocks.0.{b}.{n}')
            for a, b in (('self_attn', 'attn1'), ('cross_attn', 'attn2')) for o, n in ATTENTION] +
           [('blocks.0.ffn.0', 'blocks.0.ffn.net.0.proj'), ('blocks.0.ffn.2', 'blocks.0.ffn.net.2'),
            ('time_embedding.0', 'condition_embedder.time_embedder.linear_1'),
            ('time_projection.1', 'condition_embedder.time_proj'),
            ('text_embedding.2', 'condition_embedder.text_embedder.linear_2'),
            ('head.head', 'proj_out'), ('patch_embedding', 'patch_embedding')])
NORMS = {'blocks.0.norm3': 'blocks.0.norm2'} | {
    f'blocks.0.{a}.norm_{o}': f'blocks.0.{b}.norm_{o}'
    for a, b in (('self_attn', 'attn1'), ('cross_attn', 'attn2')) for o in 'qk'}

LTX2 = {'patchify_proj': 'proj_in', 'audio_patchify_proj': 'audio_proj_in',
        'adaln_single.linear': 'time_embed.linear',
        'audio_adaln_single.emb.timestep_embedder.linear_1':
            'audio_time_embed.emb.timestep_embedder.linear_1'} | {
    f'av_ca_{a}_adaln_single.linear': f'av_cross_attn_{b}.linear' for a, b in (
        ('video_scale_shift', 'video_scale_shift'), ('a2v_gate', 'video_a2v_gate'),
        ('audio_scale_shift', 'audio_scale_shift'), ('v2a_gate', 'audio_v2a_gate'))} | {
    m: m for m in (f'transformer_blocks.0.{p}' for p in (
        'attn1.to_q', 'audio_attn1.to_out.0', 'attn2.to_k', 'audio_to_video_attn.to_v',
        'video_to_audio_attn.to_q', 'ff.net.0.proj', 'audio_ff.net.2'))}

VIDEOS = ('wan', 'hunyuanvideo')
UNET = ['down_blocks.0.resnets.0.conv1', 'down_blocks.0.downsamplers.0.conv'] + [
    'mid_block.attentions.0.' + m for m in (
        'proj_in', 'transformer_blocks.0.attn1.to_q', 'transformer_blocks.0.attn2.to_out.0',
        'transformer_blocks.0.ff.net.0.proj')]

# A row: what begins its first cell, what its second holds; tiny model, forms of the file.
ROWS = [
    ('FLUX.1-schnell', '-', 'flux-schnell', []),
    ('FLUX.1-dev', 'Hyper-FLUX.1-dev-8steps', 'flux', [(PEFT, FLUX)]),
    ('FLUX.1-dev', 'FLUX.1-Turbo-Alpha', 'flux', [(PEFT, FLUX)]),
    ('FLUX.2-klein', '-', 'flux2-klein', []),
    ('FLUX.2-dev', 'FLUX.2-dev-Turbo', 'flux2', [(PEFT, FLUX2)]),
    ('Qwen-Image-Edit, -2509', 'Edit-2509-Lightning', 'qwen-edit', [(LIGHTNING, QWEN)]),
    ('Qwen-Image-Edit-2511', 'Edit-2511-Lightning', 'qwen-edit-plus', [(LIGHTNING, QWEN)]),
    ('Qwen-Image', 'Lightning-4steps', 'qwen', [(LIGHTNING, QWEN)]),
    ('Qwen-Image', 'Lightning-8steps', 'qwen', [(LIGHTNING, QWEN)]),
    ('Z-Image-Turbo', '-', 'zimage', []),
    ('Krea-2-Turbo', '-', 'krea2-turbo', []),
    ('3.5-large-turbo', '-', 'sd35', []),
    ('sdxl-turbo', '-', 'sdxl-turbo', []),
    ('lcm-sdxl', '-', 'sdxl-lcm', []),
    ('stable-diffusion-xl-base', 'sdxl_lightning_4step', 'sdxl', [(KOHYA, UNET)]),
    ('stable-diffusion-xl-base', 'lcm-lora-sdxl', 'sdxl', [(KOHYA, UNET)]),
    ('stable-diffusion-xl-base', 'Hyper-SDXL-4steps', 'sdxl', [(KOHYA, UNET)]),
    ('stable-diffusion-xl-base', 'Hyper-SDXL-1step', 'sdxl', [(KOHYA, UNET)]),
    ('stable-diffusion-xl-base', 'dmd2_sdxl_4step', 'sdxl', [(KOHYA, UNET), (UNET_PEFT, UNET)]),
    ('sd-turbo', '-', 'sd2', []),
    ('stable-diffusion-v1-5', 'lcm-lora-sdv1-5', 'sd', [(KOHYA, UNET)]),
    ('stable-diffusion-v1-5', 'Hyper-SD15-4steps', 'sd', [(KOHYA, UNET)]),
    ('stable-diffusion-v1-5', 'Hyper-SD15-1step', 'sd', [(KOHYA, UNET)]),
    ('PixArt-LCM', '-', 'alpha', []),
    ('HunyuanVideo-1.5-480p_i2v_step_distilled', '-', 'hunyuanvideo15-few', []),
    ('LTX-2 distilled', '-', 'ltx2', []),
    ('LTX-2', 'ltx-2-19b-distilled-lora-384', 'ltx2', [(PLAIN_COMFY, LTX2)]),
    ('Wan 2.1 T2V-14B', 'lightx2v', 'wan', [(COMFY, WAN), (KOHYA, WAN)]),
    ('Wan 2.2 T2V-A14B', 'Wan2.2-Lightning', 'wan22', [(COMFY, WAN)]),
]


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print('%sok %d - %s' % ('' if ok else 'not ', count, what))
    for m in more if not ok else ():
        print('#', repr(m)[:2000])


def shapes(model):
    file = next(f for folder in ('transformer', 'unet')
                for f in (FULL / model / folder).glob('diffusion_pytorch_model.safetensors'))
    with open(file, 'rb') as f:
        (n,) = struct.unpack('<Q', f.read(8))
        return {k: v['shape'] for k, v in json.loads(f.read(n)).items() if k != '__metadata__'}


def write(path, tensors):
    header, data = {}, b''
    for name, (shape, values) in tensors.items():
        raw = struct.pack('<%df' % len(values), *values)
        header[name] = {'dtype': 'F32', 'shape': shape,
                        'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)


def lora(model, form, modules):
    """Tensors of modules, in the shapes of the model's; of norms whole differences."""
    before, down, up, more = form
    have, rng, out = shapes(model), random.Random(5), {}
    kohya = before.endswith('_')
    numbers = lambda n: [rng.gauss(0, 0.2) for _ in range(n)]
    of = modules if isinstance(modules, dict) else {m: m for m in modules}
    for theirs, ours in of.items():
        rows, *rest = have[ours + '.weight']
        cols = 1
        for n in rest:
            cols *= n
        name = before + (theirs.replace('.', '_') if kohya else theirs)
        out[name + down] = [RANK] + rest, numbers(RANK * cols)
        out[name + up] = [rows, RANK] + [1] * (len(rest) - 1), numbers(rows * RANK)
        if 'alpha' in more:
            out[name + '.alpha'] = [], [2.0]
        if 'diff_b' in more:
            out[name + '.diff_b'] = [rows], numbers(rows)
    for theirs, ours in NORMS.items() if 'diff_b' in more else ():
        (n,) = have[ours + '.weight']
        out[before + theirs + '.diff'] = [n], numbers(n)
    return out


def latents(model, flags, name):
    """Latents, parameters and complaints of one row; prompts are short, sizes tiny."""
    to = T / f'{name}.safetensors'
    p = subprocess.run([XDIT, 'generate', '--model', FULL / model, '-p', 'a star', '--width', '64',
                        '--height', '64', '--dtype', 'f32', '--json', '-o', to, *flags]
                       + (['--num_frames', '5'] if model.startswith(VIDEOS) else []),
                       capture_output=True, timeout=120)
    if p.returncode:
        return None, {}, p.stderr
    data = to.read_bytes()
    return data[8 + struct.unpack('<Q', data[:8])[0]:], json.loads(p.stdout), p.stderr


def table():
    """The rows of recipes."""
    text = (ROOT / 'doc/few-steps.md').read_text().split('## Recipes', 1)[1]
    lines = re.search(r'^\|---.*\n((?:\|.*\n)+)', text, re.M)[1].splitlines()
    return [[c.strip() for c in line.strip('|').split('|')] for line in lines]


def check(row, cells):
    begins, holds, model, forms = row
    flags = cells[2].strip('`').split()
    image = str(ROOT / 'tests/golden' / model / 'image.png')
    flags = [image if flags[i - 1:i] == ['--image'] else f for i, f in enumerate(flags)]
    lora_flag = [f for f in flags if f.startswith('FILE')]
    report(bool(forms) == bool(lora_flag), f'{begins}, {holds}: the flags name the file', flags)
    rest = [f for f in flags if f not in lora_flag and not f.startswith('--lora')]
    plain, made, said = latents(model, rest, 'plain')
    report(plain is not None, f'{begins}, {holds}: its flags work', rest, said)
    wanted = dict(zip(rest[::2], rest[1::2]))
    steps = int(wanted.get('--num_inference_steps') or wanted['--sigmas'].count(',') + 1)
    ran = made.get('parameters', {}).get('steps')
    report(ran == steps, f'{begins}, {holds}: {steps} steps', ran)
    for i, (form, modules) in enumerate(forms):
        file = T / 'lora.safetensors'
        write(file, lora(model, form, modules))
        full = [str(file) + f[4:] if f in lora_flag else f for f in flags]
        with_it, _, said = latents(model, full, 'lora')
        report(with_it not in (None, plain) and b'not used' not in said and b'fit' not in said,
               f'{begins}, {holds}: a file of its names, form {i + 1}', full, said)


rows = table()
unmatched = list(rows)
for row in ROWS:
    found = [c for c in unmatched if c[0].startswith(row[0]) and
             (c[1] == '-' if row[1] == '-' else row[1] in c[1])]
    if not found:
        report(False, f'doc/few-steps.md has no row {row[:2]}')
        continue
    for cells in found:
        unmatched.remove(cells)
        check(row, cells)
report(not unmatched, 'every row of doc/few-steps.md is tried', *unmatched)
print('1..%d' % count)
subprocess.run(['rm', '-rf', T])
sys.exit(bad > 0)
