/* test_component.c - a component and its files: names that may lack a prefix, tensors nobody reads.
 *
 * The CLIP text models of tests/golden are opened as they are and with a changed config. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "model/component.h"
#include "published.h"
#include "scratch.h"

enum { MAX = 1 << 20 };

static char heard[4096]; /* the last warning */

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    if (level == XD_LOG_WARN)
        snprintf(heard, sizeof heard, "%s", line);
}

static xd_status open_part(const char *model, const char *name, xd_err *e)
{
    xd_component p;
    heard[0] = 0;
    xd_status s = xd_component_open(&p, model, name, XD_KIND_TEXT, NULL, e);
    if (s == XD_OK)
        s = xd_component_files(&p, e);
    xd_component_close(&p);
    return s;
}

/* The golden model "proj" in the scratch directory, with one text of its config replaced. */
static void changed(const char *from, const char *to)
{
    size_t len;
    char  *data, *at;
    xd_err e = { 0 };
    assert_int_equal(xd_file_read("tests/golden/clip/proj/model.safetensors", MAX, &data, &len, &e),
                     XD_OK);
    scratch_put("proj/model.safetensors", data, len);
    free(data);
    assert_int_equal(xd_file_read("tests/golden/clip/proj/config.json", MAX, &data, &len, &e),
                     XD_OK);
    char *text = calloc(1, len + strlen(to) + 1);
    assert_non_null(text);
    assert_non_null(at = strstr(data, from));
    memcpy(text, data, (size_t)(at - data));
    strcat(strcat(text, to), at + strlen(from));
    scratch_put("proj/config.json", text, strlen(text));
    free(text);
    free(data);
}

static void both_forms_of_names(void **state)
{
    xd_err e = { 0 };
    (void)state;
    if (open_part("tests/golden/clip", "plain", &e) != XD_OK ||
        open_part("tests/golden/clip", "proj", &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_string_equal(heard, "");
}

/* The same file as a model without the projection: it is known, so nobody is warned of it. */
static void known_leftovers(void **state)
{
    xd_err e = { 0 };
    (void)state;
    changed("CLIPTextModelWithProjection", "CLIPTextModel");
    if (open_part(scratch, "proj", &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_string_equal(heard, "");
}

static void unknown_leftovers(void **state)
{
    xd_err e = { 0 };
    (void)state;
    changed("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    if (open_part(scratch, "proj", &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_non_null(strstr(heard, "16 tensors are not used"));
    assert_non_null(strstr(heard, "text_model.encoder.layers.2."));
    assert_null(strstr(heard, "position_ids"));
}

static void missing(void **state)
{
    xd_err e = { 0 };
    (void)state;
    changed("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
    assert_int_equal(open_part(scratch, "proj", &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "16 of "));
    assert_non_null(strstr(e.msg, "text_model.encoder.layers.3."));
}

/* Every byte of the tensors that a load reads, except a table of which rows are looked up. */
static void a_load_is_told(void **state)
{
    static const char *const not_read[] = { "position_ids", "token_embedding" };
    xd_component             p;
    xd_dev                  *dev, *count;
    xd_err                   e = { 0 };
    size_t                   want = 0;
    (void)state;
    assert_int_equal(xd_dev_open(&dev, "cpu", &e), XD_OK);
    assert_int_equal(xd_dev_open_count(&count, dev, &e), XD_OK);
    assert_int_equal(xd_component_open(&p, "tests/golden/clip", "proj", XD_KIND_TEXT, NULL, &e),
                     XD_OK);
    assert_int_equal(xd_component_files(&p, &e), XD_OK);
    for (int64_t i = 0; i < xd_st_count(p.files); i++)
        if (!strstr(xd_st_name(p.files, i), not_read[0]) &&
            !strstr(xd_st_name(p.files, i), not_read[1]))
            want += xd_bytes(xd_st_shape(p.files, i));
    p.w->upto = calloc((size_t)xd_st_count(p.files), sizeof *p.w->upto);
    p.w->reader = xd_readahead_open(0, NULL);
    assert_true(p.w->upto && p.w->reader);
    xd_component_list_reads(&p, count, XD_F32);
    assert_true(want > 0);
    assert_int_equal(xd_readahead_bytes(p.w->reader), want);
    xd_component_close(&p);
    xd_dev_close(&count);
    xd_dev_close(&dev);
}

/* What a load reads is cold when the file was dropped from memory, and is not once it was read. */
static void cold_files_are_counted(void **state)
{
    xd_component p;
    xd_dev      *dev, *count;
    xd_err       e = { 0 };
    size_t       len;
    char        *data;
    (void)state;
    changed("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 3");
    int fd = open(in_scratch("proj/model.safetensors"), O_RDONLY);
    assert_true(fd >= 0 && fsync(fd) == 0);
    assert_int_equal(xd_dev_open(&dev, "cpu", &e), XD_OK);
    assert_int_equal(xd_dev_open_count(&count, dev, &e), XD_OK);
    assert_int_equal(xd_component_open(&p, scratch, "proj", XD_KIND_TEXT, NULL, &e), XD_OK);
    assert_int_equal(xd_component_cold_bytes(&p, count, XD_F32), 0); /* no files are open */
    assert_int_equal(xd_component_files(&p, &e), XD_OK);
    p.w->upto = calloc((size_t)xd_st_count(p.files) + 1, sizeof *p.w->upto);
    p.w->reader = xd_readahead_open(0, NULL);
    assert_true(p.w->upto && p.w->reader);
    xd_component_list_reads(&p, count, XD_F32);
    size_t all = xd_readahead_bytes(p.w->reader);
    xd_component_prefetch_end(&p);
    xd_file_drop_cached(fd);
    if (xd_file_cold_bytes(fd, 0, MAX) == 0)
        print_message("# SKIP: the file system of %s keeps its files in memory\n", scratch);
    else
        assert_int_equal(xd_component_cold_bytes(&p, count, XD_F32), all);
    assert_int_equal(xd_file_read(in_scratch("proj/model.safetensors"), MAX, &data, &len, &e),
                     XD_OK);
    free(data);
    assert_int_equal(xd_component_cold_bytes(&p, count, XD_F32), 0);
    assert_null(p.w->reader);
    close(fd);
    xd_component_close(&p);
    xd_dev_close(&count);
    xd_dev_close(&dev);
}

/* A published control network declares what its listing has, beside its transformer, which has this
 * number of blocks together with the network. */
static void check_published(const char *of, const char *network, int blocks)
{
    const char *model = published_path(of);
    char        own[1024], path[1100], name[640], shape[96], *text = NULL;
    snprintf(own, sizeof own, "%s", model ? model : "");
    const char  *side = published_path(network);
    xd_component p;
    xd_err       e = { 0 };
    size_t       len;
    int          listed = 0, declared = 0;
    if (!model || !side)
        return;
    snprintf(path, sizeof path, "%s/tensors.txt", side);
    assert_int_equal(xd_file_read(path, 1 << 20, &text, &len, &e), XD_OK);
    assert_int_equal(xd_component_open(&p, own, "transformer", XD_KIND_DIT, NULL, &e), XD_OK);
    assert_int_equal(xd_component_add_sides(&p, &side, 1, &e), XD_OK);
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest)); listed++) {
        int found = 0;
        for (int i = 0; i < p.nlist && !found; i++) {
            snprintf(name, sizeof name, "%s %s", p.list[i].name,
                     xd_shape_text(p.list[i].nd, p.list[i].d, shape, sizeof shape));
            found = strncmp(name, "controlnet.0.", 13) == 0 && strcmp(name + 13, line) == 0;
        }
        if (!found)
            fail_msg("%s is not declared", line);
    }
    for (int i = 0; i < p.nlist; i++)
        declared += strncmp(p.list[i].name, "controlnet.", 11) == 0;
    assert_int_equal(declared, listed);
    assert_int_equal(p.w->net.nlayers, blocks);
    xd_component_close(&p);
    free(text);
}

static void published_sides(void **state)
{
    (void)state;
    check_published("stabilityai/stable-diffusion-3.5-large",
                    "stabilityai/stable-diffusion-3.5-large-controlnet-canny", 38 + 19);
    check_published("black-forest-labs/FLUX.1-dev", "InstantX/FLUX.1-dev-Controlnet-Union",
                    19 + 38 + 5 + 10);
    check_published("black-forest-labs/FLUX.1-dev",
                    "Shakker-Labs/FLUX.1-dev-ControlNet-Union-Pro-2.0", 19 + 38 + 6);
    check_published("Tongyi-MAI/Z-Image-Turbo", "hlky/Z-Image-Turbo-Fun-Controlnet-Union",
                    2 + 2 + 30 + 2 + 6);
    /* two blocks of the noise refiner run again on a copy */
    check_published("Tongyi-MAI/Z-Image-Turbo", "hlky/Z-Image-Turbo-Fun-Controlnet-Union-2.1",
                    2 + 2 + 30 + 2 + 2 + 15);
    check_published("Qwen/Qwen-Image", "InstantX/Qwen-Image-ControlNet-Union", 60 + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sides),
        cmocka_unit_test(both_forms_of_names),
        cmocka_unit_test(known_leftovers),
        cmocka_unit_test(unknown_leftovers),
        cmocka_unit_test(missing),
        cmocka_unit_test(a_load_is_told),
        cmocka_unit_test(cold_files_are_counted),
    };
    if (scratch_open() != 0 || mkdir(in_scratch("proj"), 0700) != 0)
        return 1;
    xd_log_enter(&(xd_logger){ hear, NULL, XD_LOG_WARN });
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xd_log_enter(NULL);
    scratch_close();
    return failed;
}
