/* xdit_line.c - parses a command line of xDiT like torchrun and argparse; see xdit_line.h */
#include "from_xdit/xdit_line.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/word_list.h"
#include "cli/opt.h"

enum {
    ASSUMED_GPUS = 8,     /* assumed number of GPUs per host, if the command line means all
                                   GPUs and does not list them */
    MAX_BLOCKS = 1000000, /* maximum number of transformer blocks in a pipeline stage, far
                                   more than any model has */
};

typedef struct reader {
    xd_line         *l;
    const xd_words  *s;
    const xd_script *text; /* the script that contains the command */
    int              i;    /* index of the next word to parse */
    xd_err          *e;
} reader;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* ---- launchers ------------------------------------------------------------------------------- */

static const char torchrun_values[] =
    " nproc_per_node nnodes node_rank master_addr master_port rdzv_backend rdzv_endpoint rdzv_id "
    "rdzv_conf "
    "max_restarts monitor_interval start_method role log_dir r redirects t tee local_ranks_filter "
    "local_addr "
    "logs_specs event_log_handler numa_binding num_processes num_machines machine_rank "
    "main_process_ip "
    "main_process_port mixed_precision dynamo_backend gpu_ids config_file ";
static const char torchrun_switches[] =
    " standalone no_python run_path use_env multi_gpu same_network m module virtual_local_rank ";

static xd_status refuse_unread(const reader *r, const char *dashes, const char *of, const char *v)
{
    return xd_fail(r->e, XD_EINVAL, "%s%s is '%.80s', which is not evaluated: " XD_SCRIPT_CURE,
                   dashes, of, xd_script_unread(v));
}

/* Refuses a word that only a shell can evaluate, and a word with typographic quotes or dashes of a
 * word processor. */
static xd_status check_word(const reader *r, const char *word)
{
    if (xd_opt_typography(word))
        return xd_fail(r->e, XD_EINVAL, "'%.80s' contains a typographic %s", word,
                       xd_opt_typography(word));
    return xd_script_unread(word) ? refuse_unread(r, "", "a word", word) : XD_OK;
}

static xd_status read_count(const reader *r, const char *name, const char *v, int least, int *to)
{
    const char *unset = !*v && r->text->unset ? r->text->unset : NULL;
    char       *end;
    long        n = strtol(v, &end, 10);
    if (end != v && !*end && n >= least && n <= 65536) {
        *to = (int)n;
        return XD_OK;
    }
    if (xd_script_unread(v))
        return refuse_unread(r, "--", name, v);
    if (unset)
        return xd_fail(
            r->e, XD_EINVAL,
            "--%s of the launcher is empty: the variable %.*s is not set; write %.*s=VALUE before "
            "the command",
            name, (int)strcspn(unset, ","), unset, (int)strcspn(unset, ",") - 1, unset + 1);
    return xd_fail(r->e, XD_EINVAL,
                   "--%s of the launcher is '%.40s', not a number from %d to 65536", name, v,
                   least);
}

/* Returns 1 if the value of --nproc_per_node means all GPUs: "gpu", or a command that counts
 * GPUs. */
static int is_every_gpu(const char *v)
{
    return xd_list_has(" gpu auto cpu xpu ", v) ||
           (xd_script_unread(v) && (strstr(v, "-smi") || strstr(v, "device_count")));
}

static xd_status launcher_option(reader *r, const char *name, const char *v)
{
    xd_line *l = r->l;
    int      accelerate = l->by == XD_BY_ACCELERATE;
    if (!strcmp(name, "nproc_per_node") && is_every_gpu(v))
        l->auto_nproc = 1;
    else if (!strcmp(name, "nproc_per_node") || (accelerate && !strcmp(name, "num_processes")))
        return read_count(r, name, v, 1, &l->nproc);
    else if (!strcmp(name, "nnodes") && strchr(v, ':')) /* torchrun's range of hosts MIN:MAX */
        return read_count(r, name, strchr(v, ':') + 1, 1, &l->nnodes);
    else if (!strcmp(name, "nnodes") || (accelerate && !strcmp(name, "num_machines")))
        return read_count(r, name, v, 1, &l->nnodes);
    else if (!strcmp(name, "node_rank") || (accelerate && !strcmp(name, "machine_rank")))
        return read_count(r, name, v, 0, &l->node_rank);
    else if (!strcmp(name, "master_addr") || !strcmp(name, "main_process_ip"))
        l->master = xd_script_unread(v) ? xd_script_unread(v) : v;
    else if (!strcmp(name, "rdzv_endpoint") && !l->master)
        l->master = xd_script_unread(v) ? xd_script_unread(v) : v; /* HOST or HOST:PORT */
    return XD_OK;
}

static void plain_name(const char *word, char *name, size_t size)
{
    size_t dashes = strspn(word, "-"), n = strcspn(word + dashes, "=");
    snprintf(name, size, "%.*s", (int)n, word + dashes);
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : *p;
}

/* Completes the abbreviated name of an option such as --nnode, if exactly one option of torchrun
 * begins with the abbreviation. */
static void complete_name(char *name, size_t size)
{
    static const char *const lists[] = { torchrun_values, torchrun_switches };
    const char              *found = NULL;
    size_t                   n = strlen(name);
    int                      count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const char *p = lists[i]; *(p += strspn(p, " ")); p += strcspn(p, " "))
            if (strncmp(p, name, n) == 0) {
                if (strcspn(p, " ") == n)
                    return;
                found = p;
                count++;
            }
    if (count == 1 && n > 2)
        snprintf(name, size, "%.*s", (int)strcspn(found, " "), found);
}

/* Parses the launcher's options, up to the name of the script or the module after -m. */
static xd_status launcher_options(reader *r)
{
    char name[64];
    int  module = 0;
    for (; r->i < r->s->n && r->s->v[r->i][0] == '-'; r->i++) {
        const char *word = r->s->v[r->i], *v = strchr(word, '=');
        plain_name(word, name, sizeof name);
        complete_name(name, sizeof name);
        if (xd_list_has(torchrun_switches, name)) {
            module |= !strcmp(name, "m") || !strcmp(name, "module");
            continue;
        }
        if (!v && check_word(r, word) != XD_OK)
            return XD_EINVAL;
        if (!xd_list_has(torchrun_values, name))
            return xd_fail(r->e, XD_EINVAL, "unknown option of the launcher: %.60s", word);
        if (!v && r->i + 1 == r->s->n)
            return xd_fail(r->e, XD_EINVAL, "the option %.60s of the launcher has no value", word);
        v = v ? v + 1 : r->s->v[++r->i];
        if (launcher_option(r, name, v) != XD_OK)
            return XD_EINVAL;
    }
    if (r->i == r->s->n)
        return xd_fail(r->e, XD_EINVAL, "the launcher has no script to run");
    const char *script = r->s->v[r->i++];
    r->l->script = module && !strcmp(script, "xfuser.runner") ? "xfuser/runner.py" : script;
    return XD_OK;
}

static int is_module(const reader *r, const char *name)
{
    return r->i + 1 < r->s->n && !strcmp(r->s->v[r->i], "-m") && !strcmp(r->s->v[r->i + 1], name);
}

static xd_status read_python(reader *r)
{
    while (r->i < r->s->n && xd_list_has(" -u -O -s -B -I ", r->s->v[r->i]))
        r->i++;
    if (is_module(r, "torch.distributed.run") || is_module(r, "torch.distributed.launch")) {
        r->i += 2;
        r->l->by = XD_BY_TORCHRUN;
        return launcher_options(r);
    }
    if (is_module(r, "xfuser.cli")) {
        r->i += 2;
        r->l->by = XD_BY_RUNNER;
        r->l->script = "xdit";
        return XD_OK;
    }
    if (is_module(r, "xfuser.runner"))
        r->i++;
    if (r->i == r->s->n || (r->s->v[r->i][0] == '-' && strcmp(r->s->v[r->i], "-m") != 0))
        return xd_fail(r->e, XD_EINVAL, "python has no script to run");
    r->l->script = !strcmp(r->s->v[r->i], "xfuser.runner") ? "xfuser/runner.py" : r->s->v[r->i];
    r->i++;
    return XD_OK;
}

/* Parses a command of xDiT's program `xdit`. The program `xdit` of xDiT accepts options of the
 * launcher in any place; all other words are options of xDiT's runner. */
static xd_status read_runner(reader *r)
{
    static const char own[] = " nproc_per_node nnodes node_rank master_addr master_port ";
    char              name[64];
    r->l->script = "xdit";
    for (int i = r->i; i < r->s->n; i++) {
        const char *word = r->s->v[i], *v = strchr(word, '=');
        plain_name(word, name, sizeof name);
        if (strncmp(word, "--", 2) != 0 || !xd_list_has(own, name) || (!v && i + 1 == r->s->n))
            continue;
        if (launcher_option(r, name, v ? v + 1 : r->s->v[i + 1]) != XD_OK)
            return XD_EINVAL;
    }
    return XD_OK;
}

static const char before_launchers[] = " nohup time exec sudo ";

static int is_python(const char *name)
{
    return strncmp(name, "python", 6) == 0 && strspn(name + 6, "0123456789.") == strlen(name + 6);
}

/* Returns the number of words before the launcher, such as nohup and other programs that start a
 * program. */
static int count_wrappers(int n, char **w)
{
    static const char tools[] =
        " numactl taskset nice timeout stdbuf nsys conda mamba uv poetry env ";
    int i = 0;
    while (i + 1 < n && xd_list_has(before_launchers, base_name(w[i])))
        i++;
    if (!xd_list_has(tools, base_name(w[i])))
        return i;
    for (int k = i + 1; k < n; k++) {
        const char *name = base_name(w[k]);
        if (!strcmp(name, "torchrun") || is_python(name) || !strcmp(name, "accelerate"))
            return k;
    }
    return i;
}

/* Returns 1 if a Python script belongs to xDiT, because of its name or an option --model. */
static int is_ours(int n, char **w)
{
    const char *base = base_name(w[0]);
    int         known = xd_xdit_by_script(w[0]) || ends_with(base, "runner.py") ||
                        ends_with(base, "_latency_test.py") || strstr(w[0], "entrypoints");
    for (int i = 1; i < n && !known; i++)
        known = strncmp(w[i], "--model", 7) == 0;
    return known && strcmp(base, "setup.py") != 0;
}

int xd_line_wanted(int n, char **w)
{
    int skip = count_wrappers(n, w);
    n -= skip;
    w += skip;
    const char *name = base_name(w[0]);
    if (is_python(name)) {
        int i = 1;
        while (i < n && xd_list_has(" -u -O -s -B -I ", w[i]))
            i++;
        if (i + 1 < n && !strcmp(w[i], "-m"))
            return !strncmp(w[i + 1], "torch.distributed.", 18) || !strncmp(w[i + 1], "xfuser", 6);
        return i == n || is_ours(n - i, w + i);
    }
    if (ends_with(name, ".py"))
        return is_ours(n, w);
    return !strcmp(name, "torchrun") || !strcmp(name, "xdit") || !strcmp(name, "xfuser-runner") ||
           (!strcmp(name, "accelerate") && n > 1 && !strcmp(w[1], "launch"));
}

static xd_status read_launcher(reader *r)
{
    r->i += count_wrappers(r->s->n - r->i, r->s->v + r->i);
    const char *name = base_name(r->s->v[r->i]);
    const char *word = r->s->v[r->i++];
    if (!strcmp(name, "torchrun"))
        return launcher_options(r);
    if (is_python(name)) {
        r->l->by = XD_BY_PYTHON;
        return read_python(r);
    }
    if (!strcmp(name, "accelerate") && r->i < r->s->n && !strcmp(r->s->v[r->i], "launch")) {
        r->i++;
        r->l->by = XD_BY_ACCELERATE;
        return launcher_options(r);
    }
    if (!strcmp(name, "xdit") && r->i < r->s->n && r->s->v[r->i][0] != '-')
        return xd_fail(r->e, XD_EINVAL, "'xdit %.40s' is already a command of this program",
                       r->s->v[r->i]);
    if (!strcmp(name, "xdit") || !strcmp(name, "xfuser-runner")) {
        r->l->by = XD_BY_RUNNER;
        return read_runner(r);
    }
    if (ends_with(name, ".py")) {
        r->l->by = XD_BY_PYTHON;
        r->l->script = word;
        return XD_OK;
    }
    return xd_fail(r->e, XD_EINVAL,
                   "'%.80s' does not start xDiT: the command must begin with torchrun, "
                   "python, accelerate launch or xDiT's own xdit",
                   word);
}

/* ---- parsing of flags by the rules of argparse ----------------------------------------------- */

static int in_program(const xd_line *l, const xd_xdit_flag *f)
{
    if (f->in == 'f')
        return ends_with(l->script, "_generate.py");
    return f->in == 'b' || f->in == (l->runner ? 'r' : 'e');
}

/* Returns the index of the flag with this name, or of the only flag whose name begins with it. -1:
 * no flag begins with the name; -2: several flags begin with the name, and `two` lists them. */
static int find_flag(const xd_line *l, const char *name, int *off, char *two, size_t size)
{
    int found = -1, n = 0;
    *off = 0;
    for (int i = 0; xd_xdit_flags[i].name; i++) {
        const xd_xdit_flag *f = &xd_xdit_flags[i];
        if (!in_program(l, f))
            continue;
        if (!strcmp(f->name, name))
            return i;
        if (f->value == 'b' && !strncmp(name, "no_", 3) && !strcmp(f->name, name + 3)) {
            *off = 1;
            return i;
        }
        if (strncmp(f->name, name, strlen(name)) == 0) {
            size_t at = strlen(two);
            snprintf(two + at, size - at, "%s--%s", n ? ", " : "", f->name);
            found = n++ ? -2 : i;
        }
    }
    return n > 1 ? -2 : found;
}

/* Records an error that argparse would print, unless an earlier error was recorded: xDiT prints
 * only the first error. */
XD_PRINTF(2, 3) static void add_complaint(xd_line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!l->refusal[0])
        vsnprintf(l->refusal, sizeof l->refusal, fmt, ap);
    va_end(ap);
}

static int is_number(const char *v, int whole)
{
    char *end;
    if (whole)
        (void)strtoll(v, &end, 10);
    else
        (void)strtod(v, &end);
    return end != v && !*end;
}

/* Returns 1 if the word is a value and not a flag; negative numbers are values. */
static int is_value(const char *word)
{
    return word[0] != '-' || !word[1] || is_number(word, 0);
}

static xd_status keep_value(reader *r, int row, const char *v)
{
    xd_given           *g = &r->l->given[row];
    const xd_xdit_flag *f = &xd_xdit_flags[row];
    const char         *kind = f->value == 'i' || f->value == 'I' ? "int" : "float";
    if (strchr("iIrR", f->value) && !is_number(v, kind[0] == 'i') && !xd_script_unread(v)) {
        add_complaint(r->l, "argument --%s: invalid %s value: '%.80s'", f->name, kind, v);
        return XD_OK;
    }
    if (v[0] == '\xe2' && !strchr(v, ' ') && check_word(r, v) != XD_OK)
        return XD_EINVAL;
    const char **more = realloc(g->v, (size_t)(g->count + 1) * sizeof *more);
    if (!more)
        return xd_fail(r->e, XD_ENOMEM, "no memory for a command line");
    g->v = more;
    g->v[g->count++] = v;
    return XD_OK;
}

static xd_status read_values(reader *r, int row, const char *inside)
{
    xd_line            *l = r->l;
    const xd_xdit_flag *f = &xd_xdit_flags[row];
    xd_status           st = XD_OK;
    l->given[row].n++;
    l->given[row].count = 0;
    if (!f->value || f->value == 'b') {
        if (inside)
            add_complaint(l, "argument --%s: ignored explicit argument '%.80s'", f->name, inside);
        return XD_OK;
    }
    if (inside)
        return keep_value(r, row, inside);
    int most = f->value <= 'Z' ? 1 << 20 : 1;
    for (int n = 0; n < most && r->i + 1 < r->s->n && is_value(r->s->v[r->i + 1]) && st == XD_OK;
         n++)
        st = keep_value(r, row, r->s->v[++r->i]);
    if (most == 1 && !l->given[row].count)
        add_complaint(l, "argument --%s: expected one argument", f->name);
    return st;
}

/* Records xDiT's error about a flag that the xDiT program of the command does not have. If another
 * program of xDiT has the flag, returns the flag's index, so that the flag is translated in spite
 * of the error; otherwise returns -1. */
static int is_of_other(xd_line *l, const char *word, const char *name)
{
    const char         *names[XD_XDIT_FLAGS_MAX];
    const xd_xdit_flag *f = word[1] == '-' ? xd_xdit_flag_find(name) : NULL;
    const char         *of = !f || f->in == 'r' ? "runner has"
                             : f->in == 'f'     ? "scripts of benchmark/fid have"
                                                : "example scripts have";
    const char         *near = NULL;
    int                 n = 0, first = !l->refusal[0];
    add_complaint(l, "unrecognized arguments: %.200s", word);
    for (int i = 0; xd_xdit_flags[i].name; i++)
        if (in_program(l, &xd_xdit_flags[i]))
            names[n++] = xd_xdit_flags[i].name;
    if (first && f)
        snprintf(l->why, sizeof l->why, "the %s it, the %s not", of,
                 l->runner ? "runner does" : "scripts do");
    else if (first && name[0] && word[1] == '-' && (near = xd_opt_nearest(name, names, n)))
        snprintf(l->why, sizeof l->why, "the nearest one is --%s", near);
    return f ? (int)(f - xd_xdit_flags) : -1;
}

static xd_status read_flag(reader *r)
{
    char        name[64], two[256] = "";
    const char *word = r->s->v[r->i], *eq = strchr(word, '=');
    int         off = 0;
    plain_name(word, name, sizeof name);
    if (r->l->by == XD_BY_RUNNER &&
        xd_list_has(" nproc_per_node nnodes node_rank master_addr master_port ", name)) {
        r->i += !eq;
        return XD_OK;
    }
    int row = word[1] == '-' ? find_flag(r->l, name, &off, two, sizeof two) : -1;
    if (row == -2)
        add_complaint(r->l, "ambiguous option: --%s could match %s", name, two);
    if (row == -1)
        row = is_of_other(r->l, word, name);
    if (row < 0) {
        while (r->i + 1 < r->s->n && is_value(r->s->v[r->i + 1]))
            r->i++;
        return XD_OK;
    }
    r->l->given[row].off = off;
    return read_values(r, row, eq ? eq + 1 : NULL);
}

/* If the previous word is a switch (a flag without a value), returns that switch; else NULL. */
static const xd_xdit_flag *switch_before(const reader *r)
{
    const char         *word = r->i ? r->s->v[r->i - 1] : "";
    const xd_xdit_flag *f =
        !strncmp(word, "--", 2) && !strchr(word, '=') ? xd_xdit_flag_find(word + 2) : NULL;
    return f && (!f->value || f->value == 'b') ? f : NULL;
}

/* Parses a word that is neither a flag nor a value of a flag. If a word is the name of a flag
 * without its dashes and a value follows, both words are parsed as this flag; xDiT would print both
 * words as an error. */
static xd_status read_stray(reader *r)
{
    xd_line            *l = r->l;
    const char         *word = r->s->v[r->i], *next = r->i + 1 < r->s->n ? r->s->v[r->i + 1] : NULL;
    const xd_xdit_flag *f = xd_xdit_flag_find(word), *before = switch_before(r);
    if (check_word(r, word) != XD_OK)
        return XD_EINVAL;
    int first = !l->refusal[0], pair = f && f->value && f->value != 'b' && next && is_value(next);
    add_complaint(l, "unrecognized arguments: %.200s%s%.40s", word, pair ? " " : "",
                  pair ? next : "");
    if (first && f)
        snprintf(l->why, sizeof l->why, "--%s is meant?", f->name);
    else if (first && before)
        snprintf(l->why, sizeof l->why, "--%s takes no value", before->name);
    if (!f || (f->value && !pair))
        return XD_OK;
    l->no_dashes = f;
    return read_values(r, (int)(f - xd_xdit_flags), NULL);
}

static xd_status read_flags(reader *r)
{
    for (; r->i < r->s->n; r->i++)
        if ((is_value(r->s->v[r->i]) ? read_stray(r) : read_flag(r)) != XD_OK)
            return r->e->code;
    if (!xd_line_text(r->l, "model"))
        add_complaint(r->l, "the following arguments are required: --model");
    return XD_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

const xd_given *xd_line_given(const xd_line *l, const char *flag)
{
    const xd_xdit_flag *f = xd_xdit_flag_find(flag);
    const xd_given     *g = f ? &l->given[f - xd_xdit_flags] : NULL;
    return g && g->n ? g : NULL;
}

const char *xd_line_text(const xd_line *l, const char *flag)
{
    const xd_given *g = xd_line_given(l, flag);
    return g && g->count ? g->v[g->count - 1] : NULL;
}

int xd_line_int(const xd_line *l, const char *flag, int none)
{
    const char *v = xd_line_text(l, flag);
    long        n = v ? strtol(v, NULL, 10) : none;
    return n > 2147483647L ? 2147483647 : n < -2147483647L ? -2147483647 : (int)n;
}

double xd_line_real(const xd_line *l, const char *flag, double none)
{
    const char *v = xd_line_text(l, flag);
    return v ? strtod(v, NULL) : none;
}

int xd_line_on(const xd_line *l, const char *flag)
{
    const xd_given *g = xd_line_given(l, flag);
    return g && !g->off;
}

int xd_line_product(const xd_line *l)
{
    static const char *const degrees[] = { "data_parallel_degree", "ulysses_degree", "ring_degree",
                                           "pipefusion_parallel_degree", "tensor_parallel_degree" };
    double                   product = xd_line_on(l, "use_cfg_parallel") ? 2 : 1;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        product *= xd_line_int(l, degrees[i], 1);
    return product > 1e9 ? 1000000000 : product < -1e9 ? -1000000000 : (int)product;
}

/* ---- parsing of the complete command line ---------------------------------------------------- */

/* Returns the number of processes that xDiT's program `xdit` starts. The program `xdit` of xDiT
 * multiplies the parallel degrees on the command line. xDiT's program recognizes only names of
 * degrees that are written with _, and ignores a value that follows the name of a switch as a
 * separate word. */
static int counted_ranks(const xd_words *s)
{
    static const char *const degrees[] = { "--ulysses_degree", "--tensor_parallel_degree",
                                           "--ring_degree", "--pipefusion_parallel_degree",
                                           "--data_parallel_degree" };
    double                   product = 1;
    for (int i = 0; i < s->n; i++) {
        for (size_t k = 0; k < sizeof degrees / sizeof *degrees; k++) {
            size_t n = strlen(degrees[k]);
            if (strcmp(s->v[i], degrees[k]) == 0 && i + 1 < s->n)
                product *= atoi(s->v[i + 1]);
            else if (strncmp(s->v[i], degrees[k], n) == 0 && s->v[i][n] == '=')
                product *= atoi(s->v[i] + n + 1);
        }
        if (!strcmp(s->v[i], "--use_cfg_parallel") || !strcmp(s->v[i], "--use_cfg_parallel=True"))
            product *= 2;
    }
    return product < 1 ? 1 : product > 65536 ? 65536 : (int)product;
}

static int listed_devices(const char *v)
{
    int n = v && *v ? 1 : 0;
    for (; v && *v; v++)
        n += *v == ',';
    return n;
}

static void count_processes(xd_line *l, const xd_command_line *s)
{
    int devices = listed_devices(s->devices);
    if (!l->nnodes)
        l->nnodes = 1;
    if (!l->nproc && l->auto_nproc)
        l->nproc = devices ? devices : ASSUMED_GPUS;
    if (!l->nproc && l->by == XD_BY_RUNNER)
        l->nproc = counted_ranks(&s->words);
    if (!l->nproc)
        l->nproc = 1;
    l->world = xd_line_on(l, "use_ray") ? xd_line_int(l, "ray_world_size", 1)
                                        : l->nproc * (l->nnodes > 4096 ? 4096 : l->nnodes);
}

static int read_field(const xd_json *j, const char *name)
{
    double v = 0;
    return xd_json_number(xd_json_get(j, name), &v) && v > 0 && v < 1e6 ? (int)v : 0;
}

/* Sets the number of attention heads and of transformer blocks of the model: from the config in the
 * model directory if it exists, else from the table of xDiT's models. */
static void read_net(xd_line *l)
{
    const char        *model = xd_line_text(l, "model");
    const xd_xdit_net *net = model ? xd_xdit_net_find(model) : NULL;
    char              *path = model ? xd_path_join(model, "transformer/config.json") : NULL;
    xd_json           *j = NULL;
    if (net)
        l->heads = net->heads, l->blocks = net->blocks, l->cross = net->cross;
    int heads = path && xd_file_exists(path) && xd_json_read(&j, path, NULL) == XD_OK
                    ? read_field(j, "num_attention_heads") + read_field(j, "n_heads")
                    : 0;
    if (heads) {
        l->heads = heads;
        l->blocks = read_field(j, "num_layers") + read_field(j, "num_single_layers") +
                    read_field(j, "n_layers") + 2 * read_field(j, "n_refiner_layers") +
                    2 * read_field(j, "num_refiner_layers");
        l->cross = read_field(j, "num_cross_attention_heads");
        l->from_config = 1;
    }
    xd_json_free(&j);
    free(path);
}

/* Refuses a command with values that only a shell can evaluate. */
static xd_status check_run(const reader *r)
{
    for (int i = 0; xd_xdit_flags[i].name; i++) {
        const xd_given *g = &r->l->given[i];
        xd_flag_kind    kind = xd_xdit_flags[i].kind;
        for (int k = 0; k < g->count && (kind == XD_FLAG_SAME || kind == XD_FLAG_OTHER); k++)
            if (xd_script_unread(g->v[k]))
                return refuse_unread(r, "--", xd_xdit_flags[i].name, g->v[k]);
    }
    return XD_OK;
}

xd_status xd_line_read(xd_line *l, const xd_script *text, const xd_command_line *s, xd_err *e)
{
    reader    r = { .l = l, .s = &s->words, .text = text, .e = e };
    xd_status st = read_launcher(&r);
    if (st != XD_OK)
        return st;
    if (check_word(&r, base_name(l->script)) != XD_OK)
        return XD_EINVAL;
    l->script = xd_script_unread(l->script) ? xd_script_unread(l->script) : l->script;
    if (ends_with(l->script, "launch.py") || strstr(l->script, "entrypoints"))
        return xd_fail(e, XD_EINVAL,
                       "%.80s is xDiT's HTTP service; use xdit serve, or translate a command line "
                       "of an example script or the runner",
                       l->script);
    l->runner = l->by == XD_BY_RUNNER || ends_with(l->script, "runner.py");
    if ((st = read_flags(&r)) != XD_OK || (st = check_run(&r)) != XD_OK)
        return st;
    count_processes(l, s);
    const char *model = xd_line_text(l, "model");
    l->model = l->runner ? (model ? xd_xdit_by_name(model) : NULL) : xd_xdit_by_script(l->script);
    read_net(l);
    l->known_model = l->model || l->heads ||
                     (model && (xd_xdit_by_name(model) || xd_file_is_dir(model)));
    return XD_OK;
}

int64_t xd_line_sum(const xd_given *list, const char **bad)
{
    int64_t sum = 0;
    *bad = NULL;
    for (int i = 0; list && i < list->count; i++) {
        long long n = strtoll(list->v[i], NULL, 10);
        if ((n < 0 || n > MAX_BLOCKS) && !*bad)
            *bad = list->v[i];
        sum += n < 0 ? 0 : n > MAX_BLOCKS ? MAX_BLOCKS : n;
    }
    return sum;
}

void xd_line_free(xd_line *l)
{
    for (int i = 0; i < XD_XDIT_FLAGS_MAX; i++)
        free(l->given[i].v);
    *l = (xd_line){ 0 };
}
