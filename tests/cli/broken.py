#!/usr/bin/env python3
"""broken.py XDIT ROOT GOLDEN - model directories with one thing broken in each: `xdit generate`
ends with exit code 1 or 2 and one sentence that names the file or the directory, writes nothing,
and `xdit inspect` finds the same. Speaks TAP."""

import json, os, pathlib, shutil, struct, subprocess, sys, tempfile

XDIT, ROOT, GOLDEN = (
    os.path.abspath(sys.argv[1]),
    pathlib.Path(sys.argv[2]),
    pathlib.Path(sys.argv[3]),
)
T = pathlib.Path(tempfile.mkdtemp())
SIZE = ['-W', '64', '-H', '64', '--steps', '2', '--no_resolution_binning']
MODELS = {
    'demo': ROOT / 'models' / 'demo-pixart',
    'sd3': GOLDEN / 'sd3',
    'hunyuan': GOLDEN / 'hunyuan',
    'flux': GOLDEN / 'flux',
    'zimage': GOLDEN / 'zimage',
    'klein': GOLDEN / 'flux2-klein',
    'lumina': GOLDEN / 'lumina2',
    'mochi': GOLDEN / 'mochi',
    'ltx': GOLDEN / 'ltx',
    'hunyuanvideo': GOLDEN / 'hunyuanvideo',
    'hunyuanvideo15': GOLDEN / 'hunyuanvideo15',
    'flux2': GOLDEN / 'flux2',
    'i2v': GOLDEN / 'wan-i2v',
}
count = bad = 0


# What is broken in a file: each of these takes its path.


def keys(**new):
    """These keys of a JSON file become those values; None removes."""

    def change(path):
        j = json.loads(path.read_text())
        for k, v in new.items():
            j[k] = v
            if v is None:
                del j[k]
        path.write_text(json.dumps(j))

    change.what = ', '.join('%s = %s' % kv for kv in new.items())
    return change


def text(s):
    def change(path):
        path.write_bytes(s if isinstance(s, bytes) else s.encode())

    change.what = repr(s)[:30]
    return change


def inner(**new):
    """The same of the text part of a model's config."""

    def change(path):
        j = json.loads(path.read_text())
        j['text_config'].update(new)
        path.write_text(json.dumps(j))

    change.what = 'text_config: ' + ', '.join('%s = %s' % kv for kv in new.items())
    return change


def no_piece(piece):
    """A tokenizer.json without a piece or a special token."""

    def change(path):
        j = json.loads(path.read_text())
        j['added_tokens'] = [t for t in j['added_tokens'] if t['content'] != piece]
        j['model']['vocab'].pop(piece, None)
        path.write_text(json.dumps(j))

    change.what = 'no piece ' + piece
    return change


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def gone(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_directory(path):
    path.unlink()
    path.mkdir()


def header(change, what):
    """The header of a safetensors file is changed in place; the data stay."""

    def apply(path):
        b = path.read_bytes()
        (n,) = struct.unpack('<Q', b[:8])
        h = json.loads(b[8 : 8 + n])
        first = sorted(k for k in h if k != '__metadata__')[0]
        change(h, first)
        raw = json.dumps(h).encode()
        path.write_bytes(struct.pack('<Q', len(raw)) + raw + b[8 + n :])

    apply.what = what
    return apply


def another_shape(h, k):
    h[k]['shape'] = [1] + h[k]['shape'] if len(h[k]['shape']) < 4 else h[k]['shape'][::-1] + [1]


renamed = header(lambda h, k: h.update({'other\x1b[31m': h.pop(k)}), 'a tensor is missing')
shaped = header(another_shape, 'a tensor has another shape')
typed = header(lambda h, k: h[k].update(dtype='F4\x1b[31m'), 'a tensor of an unknown type')
longer = header(lambda h, k: h[k].update(data_offsets=[0, 1 << 40]), 'a tensor behind the end')
no_eos = keys(eos_token='')

CASES = [
    (m, f, c)
    for m, files, changes in [
        (
            'demo',
            ['model_index.json'],
            [
                cut,
                text(''),
                text('[]'),
                keys(_class_name='No\x1b[31mPipeline'),
                keys(_class_name=None),
            ],
        ),
        ('demo', ['transformer', 'vae', 'text_encoder', 'tokenizer'], [gone]),
        (
            'demo',
            ['transformer/config.json'],
            [
                gone,
                cut,
                is_directory,
                text('{}'),
                keys(num_attention_heads='x\x1b[31m'),
                keys(attention_head_dim=7),
                keys(patch_size=-1),
                keys(activation_fn='a\x1b[31m'),
                keys(norm_type='layer_norm'),
                keys(in_channels=5),
                keys(caption_channels=9),
                keys(num_layers=1 << 40),
            ],
        ),
        (
            'demo',
            ['vae/config.json'],
            [
                cut,
                keys(act_fn='relu'),
                keys(scaling_factor=0),
                keys(block_out_channels=[5]),
                keys(latent_channels=3),
                keys(latents_mean=[1]),
            ],
        ),
        (
            'demo',
            ['text_encoder/config.json'],
            [
                cut,
                keys(d_kv=4),
                keys(dense_act_fn='x\x1b[31m'),
                keys(model_type='umt5'),
                keys(num_heads=0),
            ],
        ),
        (
            'demo',
            ['scheduler/scheduler_config.json'],
            [
                cut,
                text('[]'),
                gone,
                keys(_class_name='No\x1b[31mScheduler'),
                keys(beta_start=5),
                keys(steps_offset=-3, timestep_spacing='leading'),
                keys(prediction_type='x\x1b[31m'),
                keys(beta_schedule='x'),
                keys(solver_order=9),
                keys(num_train_timesteps=0),
                keys(num_train_timesteps='many'),
                keys(trained_betas=[0.1]),
                keys(timestep_spacing='x'),
            ],
        ),
        ('demo', ['tokenizer/spiece.model'], [cut, text(''), text('no model'), is_directory]),
        ('demo', ['tokenizer/special_tokens_map.json'], [cut, no_eos]),
        (
            'demo',
            ['tokenizer/tokenizer_config.json'],
            [cut, keys(tokenizer_class='GPT2\x1b[31mTokenizer')],
        ),
        (
            'demo',
            ['transformer/diffusion_pytorch_model.safetensors'],
            [gone, cut, text(b'PK\x03\x04'), renamed, shaped, typed, longer],
        ),
        (
            'demo',
            ['vae/diffusion_pytorch_model.safetensors', 'text_encoder/model.safetensors'],
            [gone, renamed, shaped],
        ),
        (
            'sd3',
            [
                'tokenizer/special_tokens_map.json',
                'tokenizer_2/special_tokens_map.json',
                'tokenizer_3/special_tokens_map.json',
            ],
            [no_eos],
        ),
        ('sd3', ['tokenizer/merges.txt', 'tokenizer_2/vocab.json'], [cut, text('a b c\nx'), gone]),
        ('sd3', ['scheduler/scheduler_config.json'], [keys(shift=-1)]),
        ('sd3', ['transformer/config.json'], [keys(qk_norm='x'), keys(joint_attention_dim=1)]),
        (
            'flux',
            ['transformer/config.json'],
            [keys(axes_dims_rope=[1, 2]), keys(guidance_embeds='x')],
        ),
        ('flux', ['text_encoder/config.json'], [keys(hidden_act='x'), keys(num_attention_heads=5)]),
        ('zimage', ['tokenizer/tokenizer.json'], [cut, gone, no_piece('\u0120'),
                                                  no_piece('<|im_start|>')]),
        (
            'zimage',
            ['text_encoder/config.json'],
            [
                keys(num_attention_heads=0),
                keys(hidden_size=21),
                keys(hidden_size=1 << 40),
                keys(vocab_size=0),
                keys(head_dim=7),
                keys(intermediate_size=28),
                keys(model_type='qwen3\x1b[31m'),
                keys(rope_parameters={'rope_type': 'yarn', 'rope_theta': 1e6}),
            ],
        ),
        ('zimage', ['transformer/config.json'], [keys(cap_feat_dim=21), keys(axes_lens=[1])]),
        ('lumina', ['tokenizer/tokenizer.json'], [cut, gone]),
        ('mochi', ['vae/config.json'], [keys(temporal_expansions=[1, 2]), keys(latents_std=[1])]),
        ('ltx', ['vae/config.json'], [keys(patch_size_t=2), keys(upsample_factor=[2, 2, 2, 2])]),
        ('ltx', ['transformer/config.json'], [keys(cross_attention_dim=64)]),
        ('mochi', ['scheduler/scheduler_config.json'], [keys(invert_sigmas=False)]),
        ('hunyuanvideo', ['tokenizer/tokenizer.json'], [cut, gone]),
        (
            'hunyuanvideo',
            ['transformer/config.json'],
            [keys(rope_axes_dim=[8]), keys(text_embed_dim=35), keys(image_condition_type='x')],
        ),
        ('hunyuanvideo', ['vae/config.json'], [keys(spatial_compression_ratio=3)]),
        ('hunyuanvideo15', ['vae/config.json'], [keys(spatial_compression_ratio=8)]),
        (
            'hunyuanvideo15',
            ['guider/guider_config.json'],
            [cut, keys(_class_name='x'), keys(guidance_rescale=0.5), keys(guidance_scale=-1)],
        ),
        ('hunyuanvideo15', ['tokenizer_2/tokenizer_config.json'], [cut, keys(tokenizer_class='x')]),
        (
            'hunyuanvideo15',
            ['transformer/config.json'],
            [keys(task_type='i2v'), keys(text_embed_2_dim=21), keys(in_channels=8)],
        ),
        ('lumina', ['transformer/config.json'], [keys(num_kv_heads=2), keys(axes_lens=[1, 2, 3])]),
        (
            'klein',
            ['transformer/config.json'],
            [keys(patch_size=2), keys(axes_dims_rope=[8]), keys(joint_attention_dim=35)],
        ),
        ('klein', ['vae/config.json'], [keys(batch_norm_eps=-1), keys(patch_size=[3, 3])]),
        ('flux2', ['tokenizer/tokenizer.json'], [no_piece('[SYSTEM_PROMPT]')]),
        (
            'flux2',
            ['text_encoder/config.json'],
            [
                keys(text_config=[]),
                inner(num_hidden_layers=20),
                inner(hidden_size=24),
                inner(num_key_value_heads=3),
                inner(model_type='ministral3'),
            ],
        ),
        ('i2v', ['image_encoder', 'image_processor'], [gone]),
        (
            'i2v',
            ['image_encoder/config.json'],
            [
                cut,
                keys(hidden_act='x'),
                keys(num_attention_heads=5),
                keys(hidden_size=45),
                keys(patch_size=0),
                keys(model_type='siglip\x1b[31m'),
                keys(architectures=['UMT5EncoderModel']),
            ],
        ),
        ('i2v', ['image_encoder/model.safetensors'], [gone, renamed, shaped]),
        (
            'i2v',
            ['image_processor/preprocessor_config.json'],
            [gone, cut, keys(resample=0), keys(image_mean=[1]), keys(crop_size=9)],
        ),
        ('hunyuan', ['tokenizer/vocab.txt'], [text(''), text('a\na\n'), gone]),
        (
            'hunyuan',
            ['text_encoder/config.json'],
            [keys(position_embedding_type='x'), keys(is_decoder=True)],
        ),
    ]
    for f in files
    for c in changes
]


def run(*args):
    p = subprocess.run([XDIT, *map(str, args)], capture_output=True, timeout=60)
    return (
        p.returncode,
        p.stdout.decode(errors='surrogateescape'),
        p.stderr.decode(errors='surrogateescape'),
    )


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print('%sok %d - %s' % ('' if ok else 'not ', count, what))
    if not ok:
        for m in more:
            print('#', repr(m)[:1500])


def plain(s):
    return all(c == '\n' or c.isprintable() for c in s)


def broken(model, name, change):
    d = T / 'model'
    shutil.copytree(MODELS[model], d, ignore=shutil.ignore_patterns('golden*'))
    subprocess.run(['chmod', '-R', 'u+w', d], check=True)
    path, out = d / name, T / 'x.png'
    change(path)
    what = '%s/%s: %s' % (model, name, getattr(change, 'what', change.__name__))
    what = ''.join(c if c.isprintable() else '?' for c in what)
    image = ['--image', d / 'image.png'] if (d / 'image.png').exists() else []
    rc, said, err = run('generate', '-m', d, '-p', 'a', '-q', '-o', out, *SIZE, *image)
    # What does not fit together is said of the model, all else of the file or of its folder.
    fits = 'the transformer needs' in err or 'has no scheduler' in err
    where = d if fits or path.parent == d else path.parent
    line = err.count('\n') == 1 and err.startswith('xdit: ')
    report(
        rc in (1, 2)
        and line
        and str(where) in err
        and plain(err)
        and not said
        and not out.exists(),
        what,
        rc,
        said,
        err,
    )
    out.unlink(missing_ok=True)
    rc, said, err = run('inspect', d, '--json')
    try:
        listed = json.loads(said)['missing'] if said else [err]
    except ValueError:
        listed = []
    # A scheduler that is not known can be another with --scheduler; how steps fall is asked with
    # the steps.
    if rc == 0 and name.startswith('scheduler/'):
        listed = ['?']
    report(
        (rc == 1 or listed == ['?']) and listed and plain(err), what + ': inspect', rc, said, err
    )
    shutil.rmtree(d)


try:
    for case in CASES:
        broken(*case)
finally:
    subprocess.run(['chmod', '-R', 'u+w', T])
    shutil.rmtree(T, ignore_errors=True)
print('1..%d' % count)
sys.exit(bad > 0)
