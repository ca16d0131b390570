/* hub.c - finds models in the local Hugging Face cache */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/model.h"

static char *format_text(const char *fmt, const char *a, const char *b)
{
    size_t n = strlen(fmt) + strlen(a) + strlen(b) + 1;
    char  *p = malloc(n);
    if (p)
        snprintf(p, n, fmt, a, b);
    return p;
}

char *xd_model_hub(void)
{
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    const char *xdg = getenv("XDG_CACHE_HOME");
    if (cache && *cache)
        return strdup(cache);
    if (home && *home)
        return xd_path_join(home, "hub");
    if (xdg && *xdg)
        return xd_path_join(xdg, "huggingface/hub");
    return user ? xd_path_join(user, ".cache/huggingface/hub") : NULL;
}

/* Returns 1 if s has the form "org/name" or "org/name@revision": it has exactly one slash, and
 * neither of the two names begins with a dot. */
static int is_repo_id(const char *s)
{
    const char *slash = strchr(s, '/');
    return slash && slash != s && slash[1] && !strchr(slash + 1, '/') && s[0] != '.' &&
           s[0] != '/' && slash[1] != '.';
}

/* Returns the malloc'ed path HUB/models--org--name/snapshots of a model, or NULL if the hub
 * directory does not exist or memory is short. */
static char *snapshots_of(const char *id)
{
    const char *slash = strchr(id, '/');
    char       *root = xd_model_hub(), *org = strndup(id, (size_t)(slash - id));
    char       *name = org ? format_text("models--%s--%s/snapshots", org, slash + 1) : NULL;
    char       *dir = root && name ? xd_path_join(root, name) : NULL;
    free(root), free(org), free(name);
    return dir;
}

/* Counts the folders in a directory. Sets *one to the malloc'ed path of the last of these
 * folders. */
static int count_snapshots(const char *dir, char **one)
{
    DIR *d = opendir(dir);
    int  n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *path = e->d_name[0] == '.' ? NULL : xd_path_join(dir, e->d_name);
        int   counts = path && xd_file_is_dir(path);
        n += counts;
        if (counts && one) {
            free(*one);
            *one = path;
        } else {
            free(path);
        }
    }
    if (d)
        closedir(d);
    return n;
}

/* If a model has no refs/main, returns its only snapshot. Returns NULL if the model does not have
 * exactly one snapshot. */
static char *only_snapshot(const char *id)
{
    char *dir = snapshots_of(id), *one = NULL;
    if (dir && count_snapshots(dir, &one) != 1) {
        free(one);
        one = NULL;
    }
    free(dir);
    return one;
}

/* Returns the path HUB/models--org--name/snapshots/COMMIT of a model's revision, or NULL if that
 * revision is not in the cache. */
static char *find_snapshot(const char *id, const char *revision)
{
    const char *slash = strchr(id, '/');
    char *root = xd_model_hub(), *name = NULL, *repo = NULL, *ref = NULL, *dir = NULL, *text = NULL;
    char  org[256], commit[128] = "";
    size_t len = 0;
    snprintf(org, sizeof org, "%.*s", (int)(slash - id), id);
    if (root)
        name = format_text("models--%s--%s", org, slash + 1);
    if (name)
        repo = xd_path_join(root, name);
    if (repo)
        ref = format_text("%s/refs/%s", repo, revision);
    if (ref && xd_file_read(ref, sizeof commit - 1, &text, &len, NULL) == XD_OK)
        snprintf(commit, sizeof commit, "%.*s", (int)strcspn(text, "\r\n "), text);
    else
        snprintf(commit, sizeof commit, "%.100s", revision);
    if (repo)
        dir = format_text("%s/snapshots/%s", repo, commit);
    if (dir && !xd_file_is_dir(dir)) {
        free(dir);
        dir = NULL;
    }
    if (!dir && !text && strcmp(revision, "main") == 0)
        dir = only_snapshot(id);
    free(root), free(name), free(repo), free(ref), free(text);
    return dir;
}

/* ---- names without folders ---------------------------------------------------------------- */

/* Returns the position at which the last name in the path path[0..end) begins; trailing slashes are
 * ignored. */
static xd_span last_part(const char *path, int64_t end)
{
    while (end > 1 && path[end - 1] == '/')
        end--;
    int64_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return (xd_span){ start, end - start };
}

static int starts_with(const char *path, xd_span s, const char *word)
{
    size_t n = strlen(word);
    return (size_t)s.n >= n && strncmp(path + s.start, word, n) == 0;
}

void xd_model_short_name(const char *path, xd_text_buf *b)
{
    const xd_span name = last_part(path, (int64_t)strlen(path)), up = last_part(path, name.start),
                  repo = last_part(path, up.start);
    char         *text = strndup(path + name.start, (size_t)name.n), *slash;
    if (text && up.n == 9 && starts_with(path, up, "snapshots") &&
        starts_with(path, repo, "models--")) {
        free(text);
        text = strndup(path + repo.start + 8, (size_t)repo.n - 8);
        if (text && (slash = strstr(text, "--"))) {
            *slash = '/';
            memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
        }
    }
    if (text)
        xd_buf_json_string(b, text);
    else
        b->failed = 1;
    free(text);
}

/* ---- hints about missing files --------------------------------------------------------------- */

xd_status xd_model_fail_cached(xd_err *e, xd_status code)
{
    static const char before[] = "/models--";
    const char       *repo = e && code == XD_EIO ? strstr(e->msg, before) : NULL;
    const char       *end = repo ? strstr(repo, "/snapshots/") : NULL;
    const char       *sep = repo ? strstr(repo + sizeof before - 1, "--") : NULL;
    if (!end || !sep || sep > end || strstr(e->msg, "hf download"))
        return code;
    repo += sizeof before - 1;
    size_t n = strlen(e->msg);
    char   id[512];
    snprintf(id, sizeof id, "%.*s/%.*s", (int)(sep - repo), repo, (int)(end - sep - 2), sep + 2);
    snprintf(e->msg + n, sizeof e->msg - n, "; \"hf download %s\" downloads missing files", id);
    return code;
}

/* ---- a name without its organisation ------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* If a cache folder "models--org--name" has the last part `name`, returns the malloc'ed name
 * "org/name"; for other folders, returns NULL. */
static char *repo_in(const char *folder, const char *name)
{
    static const char before[] = "models--";
    size_t            n = strlen(folder), k = strlen(name), p = sizeof before - 1;
    if (strncmp(folder, before, p) != 0 || n < p + k + 3 || strcmp(folder + n - k, name) != 0 ||
        strncmp(folder + n - k - 2, "--", 2) != 0)
        return NULL;
    char *org = strndup(folder + p, n - p - k - 2),
         *repo = org ? format_text("%s/%s", org, name) : NULL;
    free(org);
    return repo;
}

/* Lists the models in the cache that have this name, in alphabetical order. Writes the names of the
 * first models of the list, at most `room` names, to `repo`. Returns the number of names
 * written. */
static int all_named(const char *root, const char *name, char **repo, int room)
{
    DIR *d = root ? opendir(root) : NULL;
    int  n = 0;
    for (struct dirent *e; d && (e = readdir(d)) && n < room;)
        if ((repo[n] = repo_in(e->d_name, name)))
            n++;
    if (d)
        closedir(d);
    qsort(repo, (size_t)n, sizeof *repo, by_name);
    return n;
}

/* If only one model in the cache is called NAME, finds the snapshot of its main revision or, for
 * NAME@REVISION, of this revision. */
static xd_status find_named(const char *model, char **dir, xd_err *e)
{
    enum { ROOM = 16 };
    char       *repo[ROOM], *root = xd_model_hub(), name[256];
    const char *at = strchr(model, '@');
    xd_text_buf b = { 0 };
    xd_status   s = XD_EIO;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(model, "@"), model);
    int n = strchr(model, '/') || !*name ? 0 : all_named(root, name, repo, ROOM);
    for (int i = 0; i < n; i++)
        xd_buf_add(&b, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " and ", repo[i]);
    if (n == 1 && (*dir = find_snapshot(repo[0], at ? at + 1 : "main")))
        s = XD_OK;
    else if (n == 1)
        xd_fail(e, s,
                "%s is in the Hugging Face cache %s without a snapshot of %s: download it with "
                "\"hf download %s%s%s\", or name a directory",
                repo[0], root, at ? at + 1 : "main", repo[0], at ? " --revision " : "",
                at ? at + 1 : "");
    else if (n > 1)
        xd_fail(e, s,
                "%s is the name of %d models in the Hugging Face cache %s: %s; name one of them",
                name, n, root, b.p ? b.p : "");
    else
        xd_fail(e, s,
                "there is no directory %s, and no model of that name in the Hugging Face cache %s: "
                "download it with \"hf download ORG/%s\", or name a directory",
                model, root ? root : "(no HOME)", name);
    for (int i = 0; i < n; i++)
        free(repo[i]);
    xd_buf_free(&b);
    free(root);
    return s;
}

/* Writes the error for a model whose main revision has no snapshot in the cache. The message also
 * says how to get the snapshot. */
static xd_status fail_absent(const char *model, const char *id, const char *revision, xd_err *e)
{
    char *root = xd_model_hub(), *dir = snapshots_of(id);
    int   n = dir && !revision ? count_snapshots(dir, NULL) : 0;
    if (n > 1)
        xd_fail(e, XD_EIO,
                "%s has %d snapshots and no refs/main: name one of them, %s@COMMIT, or "
                "get the newest with \"hf download %s\"",
                dir, n, id, id);
    else
        xd_fail(e, XD_EIO,
                "there is no directory %s, and no snapshot of it in the Hugging Face "
                "cache %s: download it with \"hf download %s%s%s\" (or huggingface-cli download), "
                "or name a directory",
                model, root ? root : "(no HOME)", id, revision ? " --revision " : "",
                revision ? revision : "");
    free(dir);
    free(root);
    return XD_EIO;
}

xd_status xd_model_find(const char *model, char **dir, xd_err *e)
{
    char id[512], *at;
    *dir = NULL;
    if (!model || !*model)
        return xd_fail(e, XD_EINVAL, "no model is given: name a directory with model_index.json");
    if (xd_file_is_dir(model))
        return (*dir = strdup(model)) ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory");
    if (xd_file_exists(model))
        return xd_fail(e, XD_EIO,
                       "%s is a file; --model must be a directory with model_index.json. Pass a "
                       "weight file in addition (--transformer FILE)",
                       model);
    snprintf(id, sizeof id, "%s", model);
    for (size_t n = strlen(id); n > 1 && id[n - 1] == '/'; n--)
        id[n - 1] = 0;
    if (*xd_path_hint(model) || (!is_repo_id(id) && strchr(id, '/')))
        return xd_fail(e, XD_EIO, "there is no directory %s%s", model, xd_path_hint(model));
    if (!is_repo_id(id))
        return find_named(id, dir, e);
    if ((at = strchr(id, '@')))
        *at++ = 0;
    if ((*dir = find_snapshot(id, at ? at : "main")))
        return XD_OK;
    return fail_absent(model, id, at, e);
}
