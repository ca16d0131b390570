#!/usr/bin/env python3
"""distilled.py XDIT FULL - distilled checkpoints are recognised by their configs or their names and
have defaults of their own: those of flags that say the same, bit for bit. FULL has tiny models.
Speaks TAP."""

import json, os, pathlib, re, shutil, subprocess, sys, tempfile

XDIT = os.path.abspath(sys.argv[1])
FULL = pathlib.Path(sys.argv[2])
T = pathlib.Path(tempfile.mkdtemp())
count = bad = 0


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print('%sok %d - %s' % ('' if ok else 'not ', count, what))
    for m in more if not ok else ():
        print('#', repr(m)[:2000])


def model(name, of, edits=()):
    """The tiny model `of` in a folder of this name, with other values in some configs."""
    to = T / name
    shutil.copytree(FULL / of, to, dirs_exist_ok=True)
    for file, values in dict(edits).items():
        config = json.loads((to / file).read_text())
        (to / file).write_text(json.dumps({k: v for k, v in {**config, **values}.items()
                                           if v != 'absent'}))
    return to


def defaults(path):
    """(steps, guidance, text tokens) as inspect prints them."""
    p = subprocess.run([XDIT, 'inspect', path], capture_output=True, text=True, timeout=60)
    m = re.search(r'(\d+) steps, guidance ([\d.]+), (\d+) text tokens', p.stdout)
    return (int(m[1]), float(m[2]), int(m[3])) if m else p.stdout + p.stderr


def latents(path, *flags):
    to = T / 'x.safetensors'
    to.unlink(missing_ok=True)
    p = subprocess.run([XDIT, 'generate', '--model', path, '-p', 'a star', '--width', '32',
                        '--height', '32', '--dtype', 'f32', '-o', to, *flags], capture_output=True,
                       text=True, timeout=120)
    data = to.read_bytes() if p.returncode == 0 else None
    return data and data[8 + int.from_bytes(data[:8], 'little'):], p.stderr


SCHED, DIT = 'scheduler/scheduler_config.json', 'transformer/config.json'
LIGHTNING = {SCHED: {'base_shift': 1.0986122886681098, 'max_shift': 1.0986122886681098}}
# Name of the folder, tiny model, edits of configs, the defaults (None: as of any such model).
ROWS = [
    ('any', 'flux-schnell', (), (4, 0, 256)),
    ('OpenFLUX.1', 'flux-schnell', (), None),
    ('dynamic', 'flux-schnell', {SCHED: {'use_dynamic_shifting': True}}, None),
    ('FLUX.1-schnell', 'flux', (), None),
    ('some', 'zimage', (), (9, 0, 512)),
    ('Z-Image', 'zimage', {SCHED: {'shift': 6.0}}, None),
    ('Z-Image-Omni-Base', 'zimage', (), None),
    ('z_image_turbo', 'zimage', {SCHED: {'shift': 6.0}}, (9, 0, 512)),
    ('Z-Image-Turbo-8steps', 'zimage', (), (8, 0, 512)),
    ('some-krea', 'krea2-turbo', (), (8, 0, 512)),
    ('krea2_turbo_bf16', 'krea2', (), (8, 0, 512)),
    ('Krea-2-Raw', 'krea2', (), None),
    ('klein', 'flux2-klein', (), (4, 1, 512)),
    ('stable-diffusion-3.5-large-turbo', 'sd35', (), (4, 0, None)),
    ('stable-diffusion-3.5-large', 'sd35', (), None),
    ('turbocharged-large', 'sd35', (), None),
    ('sdxl-turbo', 'sdxl', (), (1, 0, None)),
    ('sd-turbo', 'sd2', (), (1, 0, None)),
    ('sd-2-1', 'sd2', (), None),
    ('lcm-config', 'alpha', {SCHED: {'_class_name': 'LCMScheduler'}}, (4, 0, None)),
    ('PixArt-LCM-XL-2-1024-MS', 'alpha', (), (4, 0, None)),
    ('PixArt-Alpha-DMD-XL-2-512x512', 'alpha', (), (1, 1, None)),
    ('lightning-config', 'qwen', LIGHTNING, (4, None, None)),
    ('Qwen-Image-Lightning-8steps', 'qwen', (), (8, None, None)),
    ('Qwen-Image', 'qwen', (), None),
    ('HunyuanDiT-v1.2-Diffusers-Distilled', 'hunyuan12', (), (25, None, None)),
    ('FastWan2.1-T2V-1.3B-Diffusers', 'wan', (), (3, 1, None)),
    ('Wan2.1-T2V-14B-StepDistill-CfgDistill', 'wan', (), (4, 1, None)),
    ('Chroma1-Flash', 'chroma', (), (8, 1, None)),
    ('LTX-2-19b-distilled', 'ltx2', (), (8, 1, None)),
    ('LTX-2.3', 'ltx23', (), None),
    ('HunyuanVideo-1.5-480p_i2v', 'hunyuanvideo15-i2v', (), None),
    ('HunyuanVideo-1.5-480p_i2v_step_distilled', 'hunyuanvideo15-i2v', (), (8, 1, None)),
    ('meanflow', 'hunyuanvideo15-few', (), (8, 1, None)),
    ('twelve-12steps', 'hunyuanvideo15-few', (), (12, 1, None)),
]
for name, of, edits, want in ROWS:
    got, plain = defaults(model(name, of, edits)), defaults(FULL / of)
    if of in ('flux-schnell', 'zimage'):        # they are such models themselves
        plain = (28, 3.5, 512) if of == 'flux-schnell' else (50, 5, 512)
    want = tuple(p if w is None else w for w, p in zip(want or (None,) * 3, plain))
    report(got == want, f'{name} of {of}: {want}', got)

# A snapshot of the cache has the name of its repository.
real = T / 'models--stabilityai--stable-diffusion-3.5-large-turbo/snapshots/0a1b'
real.parent.mkdir(parents=True)
shutil.copytree(FULL / 'sd35', real)
report(defaults(real)[:2] == (4, 0), 'a repository of the cache', defaults(real))

for name, flags in [
        ('any', ['--num_inference_steps', '4', '--guidance_scale', '0', '--max_sequence_length',
                 '256']),
        ('some', ['--num_inference_steps', '9', '--guidance_scale', '0']),
        ('stable-diffusion-3.5-large-turbo', ['--num_inference_steps', '4', '--guidance_scale',
                                              '0']),
        ('PixArt-Alpha-DMD-XL-2-512x512', ['--timesteps', '400', '--guidance_scale', '1']),
        ('LTX-2-19b-distilled', [
            '--num_inference_steps', '8', '--sigmas',
            '1,0.99375,0.9875,0.98125,0.975,0.909375,0.725,0.421875', '--flow_shift', '1',
            '--shift_terminal', '0', '--guidance_scale', '1', '--modality_scale', '1',
            '--audio_guidance_scale', '0', '--audio_modality_scale', '0']),
        ('lightning-config', ['--num_inference_steps', '4', '--true_cfg_scale', '1',
                              '--negative_prompt', 'ugly'])]:
    more = flags[4:] if name.startswith('lightning') else []
    own, err = latents(T / name, *more)
    same, _ = latents(T / name, *flags)
    report(own is not None and own == same, f'{name}: without flags as with {flags}', err)
    n = re.search(r'(\d+) steps?, .*\(defaults of a distilled checkpoint\)', err)
    report(n and n[1] == ('1' if 'DMD' in name else flags[1]), 'and its first lines name them',
           err)
    flags[1] = '300' if 'DMD' in name else '3'
    if '--sigmas' in flags:
        del flags[2:4]
    given, _ = latents(T / name, *flags)
    report(given is not None and given != own, 'and what is given counts', given is None)
print(f'1..{count}')
shutil.rmtree(T)
sys.exit(bad != 0)
