/* fuzz_task_store.c - any bytes as the file of a task that a server has kept.
 *
 * Besides not crashing: a task that is taken has an id of the server's and paths inside the folder,
 * its texts can stand in replies, and kept again it is read as the same. */
#define _XOPEN_SOURCE 700       /* mkdtemp */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "serve/task_flags.h"
#include "serve/task_store.h"

static char       folder[64], path[64];
static const char here[] = "."; /* the working directory, so that seeds know its name */
static const char id[] = "image_0123456789abcdef01234567";

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void begin(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/xd-fuzz-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    MUST(mkdtemp(folder) && chdir(folder) == 0);
    snprintf(path, sizeof path, "%s.task", id);
    atexit(remove_folder);
}

static void ignore(void *cookie, const char *line)
{
    (void)cookie;
    MUST(line[0]);
}

static xd_task *load(void)
{
    return xd_task_store_read(here, id, ignore, NULL);
}

static void check_path(const char *file)
{
    size_t n = strlen(here);
    MUST(strncmp(file, here, n) == 0 && file[n] == '/' && !strchr(file + n + 1, '/'));
    MUST(strncmp(file + n + 1, id, sizeof id - 1) == 0);
}

/* A text that replies have as a JSON value. */
static void check_json(const char *text)
{
    xd_json *j;
    MUST(xd_json_parse(&j, text, strlen(text), "text", NULL) == XD_OK);
    xd_json_free(&j);
}

static void check_task(const xd_task *t)
{
    xd_task_flags f;
    xd_err        e = { 0 };
    MUST(strcmp(t->id, id) == 0 && t->model && t->prompt && t->owner);
    MUST(t->created >= 0 && t->started >= 0 && t->ended >= 0 && t->ended < 1e12);
    for (int i = 0; i < t->ndone; i++) {
        check_path(t->done[i].file);
        check_json(t->done[i].seed);
        check_json(t->done[i].json);
        MUST(t->done[i].fps >= 0 && t->done[i].fps < 1e9);
    }
    MUST(xd_task_flags_read(&f, t->nargs, t->args, &e) == XD_OK && strcmp(f.id, id) == 0);
    check_path(f.output);
    for (int i = 0; i < f.images.n; i++)
        check_path(f.images.v[i]);
    if (f.mask_image)
        check_path(f.mask_image);
    if (f.last_image)
        check_path(f.last_image);
    for (int i = 0; i < f.control_images.n; i++)
        check_path(f.control_images.v[i]);
    if (f.control_video)
        check_path(f.control_video);
    xd_task_flags_free(&f);
}

static void check_same(const xd_task *a, const xd_task *b)
{
    MUST(a->state == b->state && a->video == b->video && a->code == b->code);
    MUST(a->nargs == b->nargs && a->ndone == b->ndone);
    MUST(a->claims == b->claims && strcmp(a->replica, b->replica) == 0);
    for (int i = 0; i < a->nargs; i++)
        MUST(strcmp(a->args[i], b->args[i]) == 0);
    MUST(strcmp(a->prompt, b->prompt) == 0 && strcmp(a->owner, b->owner) == 0);
    MUST(!a->error == !b->error && (!a->error || strcmp(a->error, b->error) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xd_err e = { 0 };
    if (!folder[0])
        begin();
    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
    xd_task *before = NULL, *t = load();
    for (int i = 0; t && i < 3; i++) {
        check_task(t);
        MUST(xd_task_store_save(here, t, t->replica, &e) == XD_OK);
        if (before && i > 1) /* the first time bytes that are not UTF-8 were replaced */
            check_same(t, before);
        xd_task_free(before);
        before = t;
        MUST((t = load()));
    }
    xd_task_free(before);
    xd_task_free(t);
    return 0;
}
