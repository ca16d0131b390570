/* ident.c - the number by which ranks know that they have the same model.
 *
 * Where a directory lies and what it is called do not count; what is in its files does. Weight files
 * are too large to be read whole, so a sample of their pages stands for them (safetensors.h). */
#include "engine/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"

enum { MAXFILE = 64 << 20 };    /* bytes of a config or vocabulary; larger ones are refused elsewhere */

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

/* A whole file; that it is not there counts, too. */
static uint64_t mix_file(uint64_t h, const char *dir, const char *name)
{
    char  *path = xd_path_join(dir, name), *text = NULL;
    size_t n = 0;
    if (path && xd_file_read(path, MAXFILE, &text, &n, NULL) == XD_OK)
        h = mix_bytes(h, text, n);
    else
        h = xd_hash_mix(h, UINT64_MAX);
    free(text);
    free(path);
    return h;
}

/* Everything that a tokenizer of some family reads. */
static uint64_t mix_tokenizer(uint64_t h, const char *model, const char *folder)
{
    static const char *const names[] = { "spiece.model", "tokenizer.json", "tokenizer_config.json",
                                         "special_tokens_map.json", "added_tokens.json",
                                         "vocab.json", "merges.txt" };
    char *dir = xd_path_join(model, folder);
    for (size_t i = 0; dir && i < sizeof names / sizeof *names; i++)
        h = mix_file(h, dir, names[i]);
    free(dir);
    return h;
}

static uint64_t mix_part(uint64_t h, const xd_part *p)
{
    h = mix_file(h, p->dir, "config.json");
    return p->files ? xd_hash_mix(h, xd_st_hash(p->files)) : h;
}

uint64_t xd_model_hash(const xd_model *m)
{
    uint64_t h = xd_hash_text(m->recipe->name);
    h = mix_file(h, m->dir, "model_index.json");
    h = mix_file(h, m->dir, "scheduler/scheduler_config.json");
    for (int i = 0; i < m->recipe->ntext; i++) {
        h = xd_hash_mix(h, (uint64_t)m->has_text[i]);
        if (!m->has_text[i])
            continue;
        h = mix_part(h, &m->text[i]);
        h = mix_tokenizer(h, m->dir, m->recipe->text[i].tokenizer);
    }
    h = mix_part(h, &m->dit);
    return xd_loras_hash(m->loras, mix_part(h, &m->vae));
}
