/* fingerprint.c - computes a hash of the model; the ranks compare their hashes to check that they
 * have the same model.
 *
 * The hash depends on the contents of files, not on the path of the directory. Weight files are too
 * large to be read completely, so only some pages of each weight file are hashed
 * (safetensors.h). */
#include "model/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/component.h"
#include "model/model.h"

/* Max bytes of a config or vocabulary that is hashed. Opening the model refuses larger files. */
enum { MAXFILE = 64 << 20 };

static uint64_t mix_bytes(uint64_t h, const char *p, size_t n)
{
    h = xd_hash_mix(h, n);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = 0;
        memcpy(&v, p + i, n - i < 8 ? n - i : 8);
        h = xd_hash_mix(h, v);
    }
    return h;
}

/* Adds a complete file to the hash; a missing file changes the hash, too. The only possible error
 * is XD_ENOMEM: without an error, a lack of memory would look like a different model. */
static uint64_t mix_file(uint64_t h, const char *dir, const char *name, xd_err *e)
{
    char     *path = dir ? xd_path_join(dir, name) : NULL, *text = NULL;
    size_t    n = 0;
    xd_err    mine = { 0 };
    xd_status s = path ? xd_file_read(path, MAXFILE, &text, &n, &mine)
                       : xd_fail(&mine, XD_ENOMEM, "no memory to read %s of a model", name);
    h = s == XD_OK ? mix_bytes(h, text, n) : xd_hash_mix(h, UINT64_MAX);
    if (s == XD_ENOMEM)
        xd_fail(e, s, "%s", mine.msg);
    free(text);
    free(path);
    return h;
}

/* Adds to the hash all files that a tokenizer of any family may read. */
static uint64_t mix_tokenizer(uint64_t h, const char *model, const char *folder, xd_err *e)
{
    static const char *const names[] = { "spiece.model",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt" };
    char                    *dir = xd_path_join(model, folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        h = mix_file(h, dir, names[i], e);
    free(dir);
    return h;
}

/* Adds to the hash the config files that an image processor may read. */
static uint64_t mix_processor(uint64_t h, const char *model, const char *folder, xd_err *e)
{
    char *dir = xd_path_join(model, folder);
    for (int i = 0; xd_image_processor_files[i]; i++)
        h = mix_file(h, dir, xd_image_processor_files[i], e);
    free(dir);
    return h;
}

static uint64_t mix_part(uint64_t h, const xd_component *p, xd_err *e)
{
    h = mix_file(h, p->dir, "config.json", e);
    for (int i = 0; i < p->nsides; i++)
        h = mix_file(h, p->sides[i], "config.json", e);
    return p->files ? xd_hash_mix(h, xd_st_hash(p->files)) : h;
}

xd_status xd_model_hash(const xd_model *m, uint64_t *hash, xd_err *e)
{
    uint64_t h = xd_hash_text(m->recipe->name);
    xd_err   mine = { 0 };
    char    *index = xd_model_index_path(m->dir);
    h = index ? mix_file(h, m->dir, strrchr(index, '/') + 1, &mine) : h;
    free(index);
    h = mix_file(h, m->dir, "scheduler/scheduler_config.json", &mine);
    if (m->recipe->audio_scheduler) {
        char *dir = xd_path_join(m->dir, m->recipe->audio_scheduler);
        h = dir ? mix_file(h, dir, "scheduler_config.json", &mine) : h;
        free(dir);
    }
    for (int i = 0; i < m->recipe->ntext; i++) {
        h = xd_hash_mix(h, (uint64_t)m->has_text[i]);
        if (!m->has_text[i])
            continue;
        h = mix_part(h, &m->text[i], &mine);
        if (m->recipe->text[i].tokenizer)
            h = mix_tokenizer(h, m->dir, m->recipe->text[i].tokenizer, &mine);
        if (m->recipe->text[i].processor)
            h = mix_processor(h, xd_model_text_dir(m, i), m->recipe->text[i].processor, &mine);
    }
    h = mix_part(h, &m->dit, &mine);
    if (m->dit2.dit)
        h = xd_loras_hash(m->loras_2, mix_part(h, &m->dit2, &mine));
    h = mix_part(h, &m->vae, &mine);
    if (m->upsampler.upsampler)
        h = mix_part(h, &m->upsampler, &mine);
    *hash = xd_loras_hash(m->loras, h);
    return mine.code ? xd_fail(e, mine.code, "%s", mine.msg) : XD_OK;
}
