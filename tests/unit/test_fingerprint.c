/* test_fingerprint.c - which changes of a model directory change the number of the model.
 *
 * The tiny model's files are copied to another directory and changed there, one byte at a time. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/model.h"
#include "scratch.h"

#define GOLDEN "tests/golden/alpha/"

static const char *const folders[] = { "scheduler", "text_encoder", "tokenizer", "transformer",
                                       "vae" };
static const char *const files[] = {
    "model_index.json",
    "scheduler/scheduler_config.json",
    "text_encoder/config.json",
    "tokenizer/spiece.model",
    "tokenizer/tokenizer_config.json",
    "tokenizer/special_tokens_map.json",
    "transformer/config.json",
    "vae/config.json",
    "text_encoder/model.safetensors",
    "transformer/diffusion_pytorch_model.safetensors",
    "vae/diffusion_pytorch_model.safetensors",
};
enum {
    NFOLDERS = sizeof folders / sizeof *folders,
    NFILES = sizeof files / sizeof *files,
    NWHOLE = 8,
    MAX = 1 << 20
}; /* the first NWHOLE are configs and vocabularies */

static uint64_t hash_of(const char *dir, int weights)
{
    xd_model m;
    xd_err   e = { 0 };
    if (xd_model_open(&m, dir, &e) != XD_OK || (weights && xd_model_files(&m, &e) != XD_OK))
        fail_msg("%s: %s", dir, e.msg);
    uint64_t h = 0;
    assert_int_equal(xd_model_hash(&m, &h, NULL), XD_OK);
    xd_model_close(&m);
    return h;
}

static char *original(const char *name, size_t *len)
{
    char  *data, path[256];
    xd_err e = { 0 };
    snprintf(path, sizeof path, GOLDEN "%s", name);
    if (xd_file_read(path, MAX, &data, len, &e) != XD_OK)
        fail_msg("%s", e.msg);
    return data;
}

static void copy(const char *name)
{
    size_t len;
    char  *data = original(name, &len);
    scratch_put(name, data, len);
    free(data);
}

static int copy_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < NFOLDERS; i++)
        if (mkdir(in_scratch(folders[i]), 0777) != 0)
            return -1;
    for (size_t i = 0; i < NFILES; i++)
        copy(files[i]);
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    return scratch_clean() > 0 ? 0 : -1;
}

static void the_directory_does_not_count(void **state)
{
    (void)state;
    assert_true(hash_of(scratch, 1) == hash_of(GOLDEN, 1));
    assert_true(hash_of(scratch, 0) == hash_of(GOLDEN, 0));
    assert_true(hash_of(scratch, 1) != hash_of(scratch, 0));
}

/* A space for a line's end leaves JSON what it means; elsewhere a byte of the last tensor. */
static void every_file_counts(void **state)
{
    (void)state;
    uint64_t h = hash_of(scratch, 1), configs = hash_of(scratch, 0);
    for (size_t i = 0; i < NFILES; i++) {
        size_t len;
        char  *data = original(files[i], &len), *line = memchr(data, '\n', len);
        if (strstr(files[i], ".json"))
            *line = ' ';
        else
            data[len - 2] ^= 1;
        scratch_put(files[i], data, len);
        free(data);
        if (hash_of(scratch, 1) == h)
            fail_msg("a byte of %s changes nothing", files[i]);
        if ((hash_of(scratch, 0) != configs) != (i < NWHOLE))
            fail_msg("%s and a model without weights", files[i]);
        copy(files[i]);
    }
    assert_true(hash_of(scratch, 1) == h);
}

static void missing_and_other_files(void **state)
{
    (void)state;
    uint64_t h = hash_of(scratch, 1);
    unlink(in_scratch("tokenizer/special_tokens_map.json"));
    assert_true(hash_of(scratch, 1) != h);
    copy("tokenizer/special_tokens_map.json");
    scratch_put("README.md", "a word", 6);
    scratch_put("tokenizer/README.md", "a word", 6);
    assert_true(hash_of(scratch, 1) == h);
    unlink(in_scratch("README.md"));
    unlink(in_scratch("tokenizer/README.md"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_directory_does_not_count, copy_all, remove_all),
        cmocka_unit_test_setup_teardown(every_file_counts, copy_all, remove_all),
        cmocka_unit_test_setup_teardown(missing_and_other_files, copy_all, remove_all),
    };
    if (scratch_open() != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close();
    return failed;
}
