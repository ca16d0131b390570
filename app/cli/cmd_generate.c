/* cmd_generate.c - the command xdit generate, which generates images or videos from prompts.
 *
 * All arguments are checked before the first denoising step. cmd_generate.c checks the command
 * line, the output files and the plan; the library checks the model and the request. A plan of
 * several ranks is checked in this process and then run by several copies of this program
 * (launch.c). Rank 0 prints and writes files. */
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/compare_runs.h"
#include "cli/default_model.h"
#include "cli/open_flags.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "cli/prompt_texts.h"
#include "cli/prompts.h"
#include "cli/restart.h"
#include "cli/resume.h"
#include "cli/step_hashes.h"
#include "cli/xdit_compat.h"
#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/roster.h"
#include "launch/stop.h"

typedef struct options { /* options of xdit generate that are not options of a request */
    const char     *model, *output, *prompt_file, *trace, *preview, *resume;
    xd_opt_texts    prompts, images, control_images, redux_images;
    xd_prompt_texts texts;
    const char     *hashes; /* file of --determinism_file */
    int             quiet, verbose, json, skip, compare;
    const char     *hosts;
    int             spare;
    /* maximum number of restarts; negative: the option is not given */
    int             max_restarts;
    int             rank_timeout; /* seconds for which a rank may make no progress; 0: no limit */
} options;

#define AT(field) offsetof(options, field)

static xd_option option_rows[] = {
    { "model", XD_OPT_TEXT, AT(model), 0, 0, NULL, "DIR",
      "directory, or org/name in the Hugging Face cache (default: the only model in cache or "
      "./models)" },
    { "prompt", XD_OPT_TEXT, AT(prompts), 0, XD_OPT_MANY, NULL, "TEXT",
      "text to generate from; may be repeated" },
    { "prompts", XD_OPT_TEXT, AT(prompt_file), 0, 0, NULL, "FILE",
      "file with a prompt per line (- standard input); comment lines begin with # and a space. "
      "In .csv files, the column named prompt is read" },
    { "image", XD_OPT_TEXT, AT(images), 0, XD_OPT_MANY, NULL, "FILE",
      "image to start from or to edit; PNG, JPEG, WebP, GIF or PPM. It is resized to the "
      "result's size (default: a size of its shape). May be repeated for models that read "
      "several images" },
    { "control_image", XD_OPT_TEXT, AT(control_images), 0, XD_OPT_MANY, NULL, "FILE",
      "image of edges, depth or similar, which determines the shapes of the result; one for each "
      "--controlnet, in the same order" },
    { "redux_image", XD_OPT_TEXT, AT(redux_images), 0, XD_OPT_MANY, NULL, "FILE",
      "image to vary, with --redux; the prompt may then be left out. May be repeated: several "
      "images are mixed (--prompt_embeds_scale)" },
    { "output", XD_OPT_TEXT, AT(output), 0, 0, NULL, "FILE",
      "output file (default: output.png or output.mp4). Image types: .png .jpg .webp .ppm "
      ".safetensors (latents). Video types: .mp4 .mov .mkv .webm .gif .rgb, or an image type "
      "for separate frames. %04d becomes the number of the image or frame; without %04d, names "
      "are name_0001.png and so on" },
    { "resume", XD_OPT_TEXT, AT(resume), 0, 0, NULL, "DIR",
      "continue the interrupted command of --checkpoint DIR; options given here replace its "
      "options, and options of the plan replace its plan" },
    { "hosts", XD_OPT_TEXT, AT(hosts), 0, 0, NULL, "LIST",
      "hosts on which xdit starts the ranks, with their number of ranks: a:2,b:2, or a file with "
      "lines `a slots=2`. With --checkpoint, the remaining hosts continue if one is lost (default: "
      "this host)" },
    { "spare", XD_OPT_INT, AT(spare), 0, 4096, NULL, "N",
      "reserve the last N ranks of --hosts to replace lost ranks, so that the plan stays the same; "
      "without --hosts, N more restarts keep the number of ranks (default: 0)" },
    { "max_restarts", XD_OPT_INT, AT(max_restarts), 0, 1000, NULL, "N",
      "maximum restarts after a lost rank (default: 1). A restart continues from --checkpoint DIR. "
      "After the first restart, each restart has one rank less; after a loss for lack of memory, "
      "the plan needs less memory; after a lost host of --hosts, the other hosts start" },
    { "rank_timeout", XD_OPT_INT, AT(rank_timeout), 0, 86400, NULL, "SECONDS",
      "time after which a hanging rank counts as killed (default: 0, never). A rank hangs if its "
      "process is stopped, or if no step ends in this time and in five times the slowest step" },
    { "skip_existing", XD_OPT_FLAG, AT(skip), 0, 0, NULL, NULL,
      "skip images with existing files, which continues an interrupted run; contents are not "
      "checked" },
    { "quiet", XD_OPT_FLAG, AT(quiet), 0, 0, NULL, NULL, "print warnings and errors only" },
    { "verbose", XD_OPT_FLAG, AT(verbose), 0, 0, NULL, NULL, "print more log messages" },
    { "preview", XD_OPT_TEXT, AT(preview), 0, 0, NULL, "FILE",
      "file for a small preview of the image, or of the video's first frame, written after "
      "every step" },
    { "trace", XD_OPT_TEXT, AT(trace), 0, 0, NULL, "FILE",
      "write a trace of all ranks, to be viewed in chrome://tracing or ui.perfetto.dev" },
    { "determinism_file", XD_OPT_TEXT, AT(hashes), 0, 0, NULL, "FILE",
      "write the hashes of --determinism_check to FILE; if FILE exists, compare with it "
      "instead, and fail at a difference" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print one JSON object per image" },
    { "compare", XD_OPT_FLAG, AT(compare), 0, 0, NULL, NULL,
      "generate again without options like --cache that change the image to save time, and "
      "print the difference of the images and the time saved" },
};

static const xd_opt_alias aliases[] = {
    { "config", "model" },
    { "steps", "num_inference_steps" },
    { "cfg_scale", "guidance_scale" },
    { "no_use_resolution_binning", "no_resolution_binning" }, /* names of options in xDiT */
    { "img_file_path", "image" },
    { "input_images", "image" },
    { "controlnet_conditioning_scale", "conditioning_scale" },
    { "distilled_transformer_path", "transformer" },
    { "distilled_transformer_2_path", "transformer_2" },
    { "ray_world_size", "nproc" },
    { "text_encoder_tp_degree", "text_tensor_parallel_degree" },
    { "dataset_path", "prompts" },
    { "cache_method", "cache" },
    { "gemm_quantization", "weights_dtype" },
    { "world_size", "nproc" },
    { "taesd", "preview_decoder" }, /* name of the option in stable-diffusion.cpp */
    /* names of options in xDiT's service */
    { "ulysses_parallel_degree", "ulysses_degree" },
    { "model_path", "model" },
    { 0 },
};

typedef struct task { /* state of one run of xdit generate */
    options       opts;
    xd_open_flags open;
    xd_request    request;
    char         *text;         /* contents of the file with prompts, or the prompt that the user
                                   has typed */
    char         *found;        /* name of the default model; NULL: --model is given */
    xd_opt_texts  operands;     /* the prompt, if the command line has it without --prompt */
    int           no_arguments; /* 1: the command line is empty */
    int           given;        /* number of prompts on the command line, which precede the prompts
                                   of the file */
    /* hosts of the option --hosts; n 0: this process starts no ranks on other hosts */
    xd_hosts      hosts;
    xd_compat     compat;
    xd_resume     resume;  /* options of the command line, as --checkpoint stores them */
    xd_resume     resumed; /* all options with which an interrupted command continues (--resume) */
    int           stored;  /* 1: --checkpoint has stored the options */
    double        since;   /* --resume: time at which the interrupted command began; else 0 */
    int           launched, rank; /* launched: 1 if an MPI launcher has started this process;
                                           rank: the rank of this process */
    int           images;         /* number of images of the request */
    /* [images] 1: the image is skipped, because its file exists (--skip_existing); NULL: no
     * image is skipped */
    char         *skipped;
    /* number of skipped images; index of the first image whose file name has not been printed */
    int           nskipped, next;
    int64_t       frames;          /* number of frames of a video; 1: an image */
    int           failed_previews; /* number of previews that could not be written */
    double        first_s;         /* start time of the first step; 0: no step has begun */
    xd_opt_table  tables[5];
    xd_opt_spec   spec;
    xd_bar        bar;
    xd_status     noted; /* status of the calls that have appended options to the list `resume` */
    xd_err        err;
} task;

enum { OPTION_ROWS = sizeof option_rows / sizeof *option_rows };

/* Appends an option of the command line to the list for --resume. */
static void note_option(void *cookie, const xd_option *o, const char *value)
{
    task               *t = (task *)(void *)((char *)cookie - offsetof(task, compat));
    const xd_opt_table *plan = &t->tables[3];
    int is_plan = (o >= plan->rows && o < plan->rows + plan->n) || strcmp(o->name, "nproc") == 0 ||
                  strcmp(o->name, "plan") == 0 || strcmp(o->name, "hosts") == 0 ||
                  strcmp(o->name, "spare") == 0;
    if (strcmp(o->name, "resume") != 0 && t->noted == XD_OK)
        t->noted = xd_resume_add(&t->resume, o->name, value, is_plan, &t->err);
}

static void task_init(task *t)
{
    int              n, nplan, nopen;
    const xd_option *rows = xd_request_options(&n), *plan = xd_parallel_options(&nplan),
                    *open = xd_open_flags_rows(&nopen);
    *t = (task){ .frames = 1, .opts.max_restarts = -1 };
    xd_open_flags_init(&t->open);
    t->launched = xd_launched(&t->rank);
    xd_request_init(&t->request);
    t->tables[0] = (xd_opt_table){ option_rows, OPTION_ROWS, &t->opts };
    t->tables[1] = xd_prompt_texts_table(&t->opts.texts);
    t->tables[2] = (xd_opt_table){ rows, n, &t->request };
    t->tables[3] = (xd_opt_table){ plan, nplan, &t->open.parallel };
    t->tables[4] = (xd_opt_table){ open, nopen, &t->open };
    t->spec = (xd_opt_spec){ .tables = t->tables,
                             .ntables = 5,
                             .aliases = aliases,
                             .once = "prompts",
                             .operands = 1,
                             .operand_of = "prompt",
                             .other_flag = xd_compat_flag,
                             .on_option = note_option,
                             .cookie = &t->compat,
                             .extra_hint = "a prompt of several words needs quotes, and every "
                                           "further prompt its own --prompt" };
}

/* ---- callbacks of the library ---------------------------------------------------------------- */

static void on_log(void *cookie, int level, const char *line)
{
    static const char *const mark[] = { "error: ", "warning: ", "", "" };
    task                    *t = cookie;
    if (t->rank > 0 && level > XD_LOG_ERROR) /* rank 0 prints the log line for all ranks */
        return;
    xd_bar_clear(&t->bar);
    fprintf(stderr, "xdit: %s%s\n", level >= 0 && level < 4 ? mark[level] : "", line);
    if (level <= XD_LOG_ERROR)
        xd_roster_report(XD_ROSTER_ERROR);
}

/* Returns 1 on rank 0, and on the first rank of each other host, because other hosts may not share
 * the disk of rank 0. */
static int keeps_options(const task *t)
{
    return t->rank <= 0 || xd_launch_is_first();
}

/* After the request is accepted, stores the options of this command line for --resume. */
static void store_options(task *t)
{
    const char *dir = t->request.checkpoint.dir;
    xd_err      e = { 0 };
    if (!dir || t->opts.resume || !keeps_options(t) || t->stored++)
        return;
    if (t->noted != XD_OK || xd_resume_save(&t->resume, dir, &e) != XD_OK)
        fprintf(stderr, "xdit: warning: --resume cannot continue this command: %s\n",
                t->noted != XD_OK ? "no memory for its options" : e.msg);
}

static void on_stage(void *cookie, const char *stage)
{
    task *t = cookie;
    store_options(t);
    xd_roster_report(XD_ROSTER_STAGE);
    if (!xd_stop_signal())
        xd_bar_stage(&t->bar, stage);
}

static void on_step(void *cookie, const xd_progress *p)
{
    task *t = cookie;
    if (t->first_s <= 0)
        t->first_s = xd_now_s() - p->step_s;
    xd_roster_report(XD_ROSTER_STEP);
    if (!xd_stop_signal())
        xd_bar_step(&t->bar, p);
}

static void on_preview(void *cookie, const xd_image *image, const xd_progress *p)
{
    task  *t = cookie;
    xd_err e = { 0 };
    (void)p;
    if (xd_image_file_save(image, t->opts.preview, &e) != XD_OK && !t->failed_previews++)
        on_log(t, XD_LOG_WARN, e.msg);
}

/* ---- results --------------------------------------------------------------------------------- */

static double start_to_first(const task *t)
{
    return t->first_s - xd_cli_started_s();
}

/* Appends "NAME":{...} with the seconds of the stages of image i, or of all images if i < 0. */
static void add_seconds(xd_text_buf *b, const task *t, const xd_result *res, int i,
                        const char *name)
{
    static const char *const parts[] = {
        "text", "load", "denoise", "decode", "total", "first_step"
    };
    const char *comma = "";
    xd_buf_add(b, ",\"%s\":{", name);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        double s = i < 0 ? xd_result_seconds(res, parts[k])
                         : xd_result_image_seconds(res, i, parts[k]);
        if (s < 0.0)
            continue;
        xd_buf_add(b, "%s\"%s\":%.6f", comma, parts[k], s);
        comma = ",";
    }
    if (i < 0 && t->first_s > 0)
        xd_buf_add(b, ",\"start_to_first_step\":%.6f", start_to_first(t));
    xd_buf_add(b, "}");
}

/* Prints the JSON object of an image, with the seconds of the image's stages. For several images,
 * also prints the total seconds of all images. */
static void print_json(const task *t, const xd_result *res, int i, const char *name)
{
    xd_text_buf b = { 0 };
    const char *about = xd_result_json(res, i);
    int         one = t->images == 1;
    xd_buf_add(&b, "{\"file\":");
    xd_buf_json_string(&b, name);
    if (t->skipped && t->skipped[i]) {
        xd_buf_add(&b, ",\"skipped\":true}");
    } else {
        xd_buf_add(&b, ",\"seed\":%llu", (unsigned long long)xd_result_seed(res, i));
        add_seconds(&b, t, res, one ? -1 : i, "seconds");
        if (!one)
            add_seconds(&b, t, res, -1, "batch_seconds");
        xd_buf_add(&b, ",\"sent\":%lld,\"parameters\":%s}", (long long)xd_result_sent(res),
                   about ? about : "null");
    }
    if (!b.failed)
        xd_cli_line(NULL, b.p);
    xd_buf_free(&b);
}

/* Writes the file name of image i to `name`. The name of a video that is saved as images contains
 * %d. */
static xd_status name_of(const task *t, int i, char *name, size_t size, xd_err *e)
{
    return xd_output_video_name(t->opts.output, i, t->images, t->frames, name, size, e);
}

static const char *name_at(void *cookie, int i)
{
    static char name[4096];
    return name_of(cookie, i, name, sizeof name, NULL) == XD_OK ? name : "";
}

/* Returns 1 if a file of this name exists and is not older than `since`. */
static int is_new(const char *name, double since)
{
    struct stat st;
    return stat(name, &st) == 0 &&
           (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec >= since;
}

/* Returns 1 if all files of an image or video exist and are not older than `since`; the name of a
 * video that is saved as images contains %d. */
static int is_there(const char *name, int64_t frames, double since)
{
    char    one[4096];
    int64_t files = xd_output_files(name, frames);
    if (files <= 1)
        return is_new(name, since) && !xd_file_is_stream(name);
    for (int64_t i = 0; i < files; i++)
        if (xd_output_name(name, (int)i, (int)files, one, sizeof one, NULL) != XD_OK ||
            !is_new(one, since))
            return 0;
    return 1;
}

/* Returns 1 if image i is to be generated. select_image is the callback `wanted` of the request,
 * which is called once per image in the order of the images. */
static int select_image(void *cookie, int i, int64_t frames)
{
    task *t = cookie;
    char  name[4096];
    t->frames = frames = t->request.output.latents_only ? 1 : frames;
    if (t->skipped && name_of(t, i, name, sizeof name, NULL) == XD_OK &&
        is_there(name, frames, t->since))
        t->nskipped += t->skipped[i] = 1;
    if (i == t->images - 1 && t->nskipped && !t->opts.quiet)
        fprintf(stderr, "xdit: %d of %d image%s skipped: %s (--%s)\n", t->nskipped, t->images,
                t->images == 1 ? "" : "s",
                t->nskipped == 1 ? "its file exists" : "their files exist",
                t->since > 0 ? "resume" : "skip_existing");
    return !t->skipped || !t->skipped[i];
}

static void print_names(const char *name, int64_t frames)
{
    char one[4096];
    for (int64_t i = 0; i < frames; i++)
        if (xd_output_name(name, (int)i, (int)frames, one, sizeof one, NULL) == XD_OK)
            xd_cli_name(one);
}

/* Prints the name of an image's file, or of every frame of a video that is saved as images. */
static void print_image(const char *name, int64_t frames)
{
    int64_t files = xd_output_files(name, frames);
    if (files > 1)
        print_names(name, files);
    else
        xd_cli_name(name);
}

/* Prints the file names of those skipped images whose number is below i. */
static void print_skipped(task *t, int i)
{
    char name[4096];
    for (; t->skipped && t->next < i; t->next++)
        if (t->skipped[t->next] && name_of(t, t->next, name, sizeof name, NULL) == XD_OK)
            print_image(name, t->frames);
}

/* Saves an image as soon as it is finished, so that a later failure loses no finished image. */
static xd_status on_image(void *cookie, const xd_result *partial, int i, xd_err *e)
{
    task           *t = cookie;
    char            name[4096];
    const xd_image *im = xd_result_image(partial, i);
    t->frames = im ? im->frames : 1;
    xd_status st = name_of(t, i, name, sizeof name, e);
    if (st == XD_OK)
        st = xd_result_save(partial, i, name, e);
    if (st != XD_OK || t->opts.json)
        return st;
    xd_bar_clear(&t->bar);
    print_skipped(t, i);
    print_image(name, t->frames);
    fflush(stdout);
    return XD_OK;
}

static void print_all_json(const task *t, const xd_result *res)
{
    char name[4096];
    for (int i = 0; i < t->images; i++)
        if (name_of(t, i, name, sizeof name, NULL) == XD_OK)
            print_json(t, res, i, name);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int is_latents(const char *path)
{
    static const char ext[] = ".safetensors";
    size_t            n = strlen(path), k = sizeof ext - 1;
    return n >= k && strcmp(path + n - k, ext) == 0;
}

static xd_status set_prompt(task *t, const char *text)
{
    if (!(t->opts.prompts.v = malloc(sizeof *t->opts.prompts.v)))
        return xd_fail(&t->err, XD_ENOMEM, "no memory for a prompt");
    t->opts.prompts.v[0] = text;
    t->opts.prompts.n = 1;
    return XD_OK;
}

/* Asks the user for the prompt on the terminal. */
static xd_status ask_prompt(task *t)
{
    xd_status st = xd_read_answer(&t->text, &t->err);
    return st == XD_OK ? set_prompt(t, t->text) : st;
}

/* If the command line has an argument that is not an option, uses this argument as the prompt. */
static xd_status take_operand(task *t)
{
    options *o = &t->opts;
    if (!t->operands.n)
        return XD_OK;
    const char *prompt = t->operands.v[0];
    if (o->prompts.n)
        return xd_fail(&t->err, XD_EINVAL, "one argument too many: '%.80s'; %s", prompt,
                       t->spec.extra_hint);
    if (xd_file_exists(prompt))
        return xd_fail(&t->err, XD_EINVAL,
                       "'%.200s' is a %s: use --model or --image for it, or "
                       "--prompt if it is a prompt",
                       prompt, xd_file_is_dir(prompt) ? "directory" : "file");
    o->prompts = t->operands;
    t->operands = (xd_opt_texts){ 0 };
    return XD_OK;
}

static xd_status find_model(task *t)
{
    xd_status st = t->opts.model ? XD_OK : xd_default_model(&t->found, &t->err);
    if (st != XD_OK || t->opts.model)
        return st;
    t->opts.model = t->found;
    if (t->rank == 0 && !t->opts.quiet)
        fprintf(stderr, "xdit: model %s, the only one of this machine (--model)\n", t->found);
    return XD_OK;
}

static xd_status read_prompts(task *t)
{
    options  *o = &t->opts;
    xd_status st = XD_OK;
    t->given = o->prompts.n;
    if (t->launched && xd_prompts_is_stream(o->prompt_file))
        return xd_fail(&t->err, XD_EINVAL,
                       "every rank reads --prompts, and %s can be read only once: use a file",
                       strcmp(o->prompt_file, "-") == 0 ? "standard input" : o->prompt_file);
    if (t->request.checkpoint.dir && xd_prompts_is_stream(o->prompt_file))
        return xd_fail(
            &t->err, XD_EINVAL,
            "--resume cannot read the prompts of a pipe again: --checkpoint needs a file "
            "of prompts");
    if (o->prompt_file)
        st = xd_prompts_read(&o->prompts, o->prompt_file, &t->text, &t->err);
    if (st == XD_OK && t->no_arguments && xd_can_ask())
        st = ask_prompt(t);
    if (st == XD_OK && !o->prompts.n && o->redux_images.n)
        return set_prompt(t, "");
    if (st == XD_OK && !o->prompts.n)
        return xd_fail(&t->err, XD_EINVAL, "the prompt is missing: xdit generate --prompt TEXT");
    return st;
}

static xd_status check_preview(task *t, const char *output)
{
    const options *o = &t->opts;
    const char    *name = o->preview;
    if (!name)
        return t->request.previews.count || t->request.previews.every
                   ? xd_fail(&t->err, XD_EINVAL,
                             "--previews and --preview_every need "
                             "--preview FILE")
                   : XD_OK;
    if (strcmp(name, output) == 0 || (o->trace && strcmp(name, o->trace) == 0))
        return xd_fail(&t->err, XD_EINVAL, "--preview and --%s are the same file %s",
                       strcmp(name, output) == 0 ? "output" : "trace", name);
    if (is_latents(name) || xd_output_check_video(name, 0, NULL) != XD_OK)
        return xd_fail(&t->err, XD_EINVAL,
                       "--preview is an image: %s must end in .png, .jpg, "
                       ".jpeg, .webp or .ppm",
                       name);
    return xd_output_check(name, 1, &t->err);
}

/* Reads --hosts, and sets *ranks to the number of ranks that this process starts: with --hosts, all
 * slots of the hosts except those that are held back as a reserve. */
static xd_status count_ranks(task *t, int *ranks)
{
    const options *o = &t->opts;
    int            starts = o->hosts && !t->launched && !xd_launch_is_child();
    xd_status      st = starts ? xd_hosts_read(&t->hosts, o->hosts, &t->err) : XD_OK;
    int            slots = xd_hosts_slots(&t->hosts), n = t->open.nproc;
    if (st == XD_OK && starts && (slots <= o->spare || n > slots - o->spare))
        st = xd_fail(&t->err, XD_EINVAL,
                     "--hosts has %d ranks, of which --spare holds back %d, and %d %s needed: give "
                     "more hosts, or a smaller --spare or --nproc",
                     slots, o->spare, n ? n : 1, n > 1 ? "are" : "is");
    if (st == XD_OK && starts && !n)
        n = slots - o->spare;
    return st == XD_OK ? xd_launch_ranks(&t->open.parallel, n, ranks, &t->err) : st;
}

/* Checks that the files of images, previews and the trace can be written, and that they have
 * different names. */
static xd_status check_files(task *t)
{
    const options *o = &t->opts;
    const char    *name = o->output ? o->output : xd_output_default(0);
    xd_status      st = xd_output_check(name, t->images, &t->err);
    if (st == XD_OK && o->trace && strcmp(o->trace, "-") == 0)
        return xd_fail(&t->err, XD_EINVAL,
                       "--trace needs the name of a file: standard output has the names of the "
                       "images");
    if (st == XD_OK && o->trace && strcmp(o->trace, name) == 0)
        return xd_fail(&t->err, XD_EINVAL, "--trace and --output are the same file %s", o->trace);
    if (st == XD_OK)
        st = check_preview(t, name);
    if (st == XD_OK && o->hashes)
        st = xd_step_hashes_begin(o->hashes, &t->err);
    return st == XD_OK && o->trace ? xd_file_writable(o->trace, &t->err) : st;
}

static xd_status check_task(task *t, int *ranks)
{
    options    *o = &t->opts;
    xd_request *r = &t->request;
    xd_status   st = take_operand(t);
    if (st == XD_OK)
        st = find_model(t);
    if (st == XD_OK)
        st = read_prompts(t);
    if (st == XD_OK)
        st = xd_open_flags_read(&t->open, &t->err);
    if (st == XD_OK)
        st = count_ranks(t, ranks);
    if (st != XD_OK)
        return st;
    long long images = (long long)o->prompts.n * r->num_images_per_prompt;
    if (images > 1000000)
        return xd_fail(&t->err, XD_EINVAL,
                       "%d prompts of %d images each are %lld images, more "
                       "than the 1000000 of one run",
                       o->prompts.n, r->num_images_per_prompt, images);
    r->prompts = o->prompts.v;
    r->nprompts = o->prompts.n;
    if ((st = xd_prompt_texts_set(&o->texts, r, &t->err)) != XD_OK)
        return st;
    if (o->images.n) {
        r->images.image = o->images.v[0];
        r->images.more_images = o->images.v + 1;
        r->images.nmore_images = o->images.n - 1;
    }
    if (o->control_images.n) {
        r->images.control_image = o->control_images.v[0];
        r->images.more_control_images = o->control_images.v + 1;
        r->images.nmore_control_images = o->control_images.n - 1;
    }
    if (o->redux_images.n) {
        r->redux.image = o->redux_images.v[0];
        r->redux.more_images = o->redux_images.v + 1;
        r->redux.nmore_images = o->redux_images.n - 1;
    }
    r->output.latents_only = o->output && is_latents(o->output);
    r->callbacks.on_stage = on_stage;
    r->callbacks.on_step = on_step;
    r->callbacks.on_image = on_image;
    r->callbacks.on_preview = o->preview && t->rank == 0 ? on_preview : NULL;
    r->callbacks.cookie = t;
    if (o->preview && !r->previews.count && !r->previews.every)
        r->previews.every = 1;
    if (o->hashes && !r->output.determinism_check)
        r->output.determinism_check = "steps";
    t->images = (int)images;
    t->since = o->resume ? xd_resume_time(o->resume) : xd_launch_since();
    if (o->skip || o->resume || t->since > 0) {
        r->callbacks.wanted = select_image;
        if (!(t->skipped = calloc((size_t)images, 1)))
            return xd_fail(&t->err, XD_ENOMEM, "no memory for the names of %lld images", images);
    }
    st = o->compare ? xd_compare_check(r, &t->err) : XD_OK;
    return t->rank > 0 || st != XD_OK ? st : check_files(t);
}

/* Checks that the output files have types for images if the model generates images, or types for
 * videos if it generates videos. Every rank checks the file names, so that all ranks refuse the
 * request together. */
static xd_status check_kind(task *t, const xd_engine *g)
{
    int video = xd_makes_videos(g);
    if (!t->opts.output)
        t->opts.output = xd_output_default(video);
    xd_status st = xd_output_check_video(t->opts.output, video, &t->err);
    int       sound = xd_makes_sound(g) && !t->request.audio.no_audio;
    return st == XD_OK ? xd_output_check_sound(t->opts.output, sound, &t->err) : st;
}

enum { LEAST_COLD = 1000000 }; /* smaller numbers of bytes read from disk are not printed */

/* Prints the predicted seconds of a stage, and the bytes that the stage reads from disk: "
 * (predicted 52.90, reading 9.5 GB)". */
static void print_predicted(const xd_engine *g, const char *part)
{
    double  predicted = xd_predicted(g, part), cold = xd_cold_bytes(g, part);
    xd_size size = xd_size_text(cold);
    int     reads = cold >= LEAST_COLD;
    if (predicted >= 0)
        fprintf(stderr, " (predicted %.2f", predicted);
    if (predicted >= 0 && reads && xd_predicted(g, "reading") < 0)
        fprintf(stderr, ", without reading %s of weights", size.s);
    else if (reads)
        fprintf(stderr, "%sreading %s", predicted >= 0 ? ", " : " (", size.s);
    if (predicted >= 0 || reads)
        fputc(')', stderr);
}

static void print_times(const task *t, const xd_engine *g, const xd_result *res)
{
    static const char *const parts[] = { "text", "load", "denoise", "decode" };
    const char              *sep = ": ";
    int                      n = t->images - t->nskipped;
    if (t->opts.quiet || t->rank > 0)
        return;
    fprintf(stderr, "xdit: %d %s%s in %.2f s", n, xd_makes_videos(g) ? "video" : "image",
            n == 1 ? "" : "s", xd_result_seconds(res, "total"));
    if (xd_result_sent(res) > 0)
        fprintf(stderr, ", %.1f MB between ranks", (double)xd_result_sent(res) / 1e6);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double s = xd_result_seconds(res, parts[i]);
        if (s < 0.005)
            continue;
        fprintf(stderr, "%s%s %.2f", sep, parts[i], s);
        print_predicted(g, parts[i]);
        sep = ", ";
    }
    if (t->first_s > 0)
        fprintf(stderr, "; start to first step %.0f ms", start_to_first(t) * 1e3);
    fputc('\n', stderr);
}

/* ---- command --------------------------------------------------------------------------------- */

static xd_open_args open_args(task *t)
{
    const options *o = &t->opts;
    xd_open_args   a = xd_open_flags_args(&t->open, o->model);
    a.log = on_log;
    a.cookie = t;
    a.trace = o->trace;
    a.once = !t->opts.compare;
    a.plan_for = &t->request;
    a.log_level = o->quiet ? XD_LOG_WARN : o->verbose ? XD_LOG_DEBUG : XD_LOG_INFO;
    return a;
}

/* If --device auto chose a GPU and the request does not fit in the GPU's memory, generates on the
 * CPU. The GPU's engine stays open until the CPU's engine is open, to keep the ranks connected. */
static xd_status generate_on_cpu(task *t, xd_engine **g, xd_open_args *a, xd_result **res)
{
    xd_engine *gpu = *g;
    if (t->rank == 0 && !t->opts.quiet)
        fprintf(stderr, "xdit: using the CPU: %s\n", t->err.msg);
    t->err = (xd_err){ .rank = -1 };
    a->device = "cpu";
    *g = NULL;
    xd_status st = xd_open(g, a, &t->err);
    xd_stop_watch(st == XD_OK ? *g : NULL);
    if (st != XD_ECOMM)
        xd_close(&gpu);
    return st == XD_OK ? xd_generate(*g, &t->request, res, &t->err) : st;
}

/* Writes the hashes of the denoising steps, or compares the hashes with the hashes of an earlier
 * run. */
static xd_status check_hashes(task *t, const xd_result *res)
{
    char      summary[512];
    xd_status st = xd_step_hashes_check(res, t->opts.hashes, summary, &t->err);
    if (st == XD_OK && !t->opts.quiet)
        fprintf(stderr, "xdit: %s%s\n", summary[0] ? summary : "wrote hashes to ",
                summary[0] ? "" : t->opts.hashes);
    return st;
}

static xd_status run_generate(task *t)
{
    const options *o = &t->opts;
    xd_engine     *g = NULL;
    xd_result     *res = NULL;
    xd_open_args   a = open_args(t);
    if (t->rank == 0)
        xd_compat_report(&t->compat, o->quiet);
    xd_bar_init(&t->bar, stderr, xd_launch_columns(), o->quiet || t->rank > 0);
    xd_status st = xd_open(&g, &a, &t->err);
    if (st == XD_OK)
        st = check_kind(t, g);
    if (st == XD_OK) {
        xd_stop_watch(g);
        st = xd_generate(g, &t->request, &res, &t->err);
        if (st == XD_ENOMEM && strcmp(a.device, "auto") == 0 && xd_device_refused(g))
            st = generate_on_cpu(t, &g, &a, &res);
        xd_bar_end(&t->bar);
    }
    if (st == XD_OK && o->json && t->rank == 0)
        print_all_json(t, res);
    else if (st == XD_OK && t->rank == 0)
        print_skipped(t, t->images);
    if (st == XD_OK)
        print_times(t, g, res);
    if (st == XD_OK && o->hashes && t->rank == 0)
        st = check_hashes(t, res);
    if (st == XD_OK && o->compare) {
        st = xd_compare_runs(g, &t->request, res, o->json, name_at, t, &t->err);
        xd_bar_end(&t->bar);
    }
    if (st == XD_OK && t->request.checkpoint.dir && keeps_options(t))
        xd_resume_done(t->request.checkpoint.dir);
    xd_stop_watch(NULL);
    xd_result_free(&res);
    if (st != XD_ECOMM) /* after XD_ECOMM the state of other ranks is unknown, so the launcher must
                           end the ranks */
        xd_close(&g);
    return st;
}

/* Starts ranks with the arguments of this command. Prompts that were read from a pipe are copied to
 * an anonymous file, which the ranks open by a path. */
static xd_status run_ranks(task *t, xd_launch *l, int *code)
{
    char      path[64], flag[96], **new_argv = NULL;
    int       fd = -1;
    xd_status st = XD_OK;
    if (xd_prompts_is_stream(t->opts.prompt_file)) {
        if (l->hosts || !xd_launch_here())
            return xd_fail(&t->err, XD_EINVAL,
                           "ranks on other hosts cannot read prompts of a pipe: use a file");
        st = xd_prompts_copy(&t->opts.prompts, t->given, path, &fd, &t->err);
        if (st == XD_OK && !(new_argv = malloc((size_t)l->argc * sizeof *new_argv)))
            st = xd_fail(&t->err, XD_ENOMEM, "no memory for a command line");
        snprintf(flag, sizeof flag, "--prompts=%s", st == XD_OK ? path : "");
        for (int i = 0; st == XD_OK && i < l->argc; i++) {
            const char *eq = strchr(l->argv[i], '=');
            new_argv[i] = l->argv[i] == t->opts.prompt_file     ? path
                          : eq && eq + 1 == t->opts.prompt_file ? flag
                                                                : l->argv[i];
        }
        l->argv = new_argv;
    }
    if (st == XD_OK)
        st = xd_launch_run(l, code, &t->err);
    free(new_argv);
    if (fd >= 0)
        close(fd);
    return st;
}

/* Returns the arguments with which the planner predicts the request of this command. */
static xd_advise_args advise_args(task *t, const xd_open_args *a)
{
    xd_advise_args ask = xd_open_flags_advise(&t->open, a->model);
    ask.request = &t->request;
    ask.cluster = a->cluster;
    ask.offload = a->offload;
    ask.device = strcmp(a->device, "auto") == 0 ? NULL : a->device;
    return ask;
}

/* Starts the ranks again as long as a rank is lost. The restarted ranks continue from the files of
 * --checkpoint. */
static xd_status restart_ranks(task *t, xd_launch *l, const xd_open_args *a, int *code)
{
    xd_restart r = { .dir = t->request.checkpoint.dir,
                     .most = t->opts.max_restarts < 0 ? 1 + t->opts.spare : t->opts.max_restarts,
                     .spare = t->hosts.n ? 0 : t->opts.spare,
                     .hosts = &t->hosts,
                     .options = t->opts.resume ? &t->resumed : &t->resume,
                     .ask = advise_args(t, a) };
    xd_status  st = XD_OK;
    while (st == XD_OK && xd_restart_next(&r, l, *l->loss))
        st = run_ranks(t, l, code);
    xd_restart_free(&r);
    return st;
}

/* Starts ranks after this process has opened the model, so that errors of the model are reported
 * before ranks are started. */
static xd_status launch_ranks(task *t, int ranks, int argc, char **argv, int *code)
{
    xd_engine   *g = NULL;
    xd_open_args a = open_args(t);
    xd_loss      loss = XD_LOSS_NONE;
    xd_launch    l = { .ranks = ranks,
                       .argc = argc,
                       .argv = argv,
                       .command = "generate",
                       .start_timeout = t->open.start_timeout,
                       .rank_timeout = t->opts.rank_timeout,
                       .loss = &loss };
    char        *on = xd_hosts_text(&t->hosts, ranks);
    l.hosts = on;
    /* restarted ranks do not generate images again that are complete */
    if (on && t->request.checkpoint.dir)
        l.since = t->since > 0 ? t->since : (double)time(NULL);
    a.log = NULL;
    a.trace = NULL;
    /* this process binds no threads to CPUs, because ranks would inherit the binding */
    a.bind = NULL;
    a.parallel = (xd_parallel){ 0 };
    xd_status st = xd_open(&g, &a, &t->err);
    if (st == XD_OK)
        st = check_kind(t, g);
    xd_close(&g);
    if (st == XD_OK)
        st = run_ranks(t, &l, code);
    if (st == XD_OK)
        st = restart_ranks(t, &l, &a, code);
    free(on);
    return st;
}

static int fail_task(task *t, xd_status st)
{
    int stopped = st == XD_ECANCELLED && xd_stop_signal();
    int code = xd_cli_failed(st, &t->err, t->rank);
    return stopped ? 128 + xd_stop_signal() : code;
}

/* Frees all members of the task, except the lists of options. */
static void free_task(task *t)
{
    xd_opt_texts_free(&t->operands);
    xd_opt_texts_free(&t->opts.prompts);
    xd_prompt_texts_free(&t->opts.texts);
    xd_opt_texts_free(&t->opts.images);
    xd_opt_texts_free(&t->opts.control_images);
    xd_opt_texts_free(&t->opts.redux_images);
    xd_open_flags_free(&t->open);
    xd_hosts_free(&t->hosts);
    free(t->skipped);
    free(t->text);
    free(t->found);
}

/* Replaces the options of the task by the options of the interrupted command, followed by the
 * options of this command line. */
static xd_status resume_task(task *t)
{
    const char *dir = t->opts.resume;
    xd_resume   all = t->resume;
    xd_err      e = t->err;
    int         prompts = t->opts.prompts.n + t->operands.n;
    if (!t->launched)
        xd_resume_wait(dir);
    xd_status st = t->noted == XD_OK ? xd_resume_load(&all, dir, &e) : t->noted;
    if (st == XD_OK && prompts)
        st = xd_fail(&e, XD_EINVAL,
                     "--resume continues with the prompts of %s, so --prompt has no meaning beside "
                     "it",
                     dir);
    free_task(t);
    task_init(t);
    t->resumed = all;
    t->err = e;
    char **argv = st == XD_OK ? calloc((size_t)(all.options.n + all.plan.n) + 1, sizeof *argv)
                              : NULL;
    for (int i = 0; argv && i < all.options.n + all.plan.n; i++)
        argv[i] =
            (char *)(void *)(i < all.options.n ? all.options.v[i] : all.plan.v[i - all.options.n]);
    if (st == XD_OK && !argv)
        st = xd_fail(&t->err, XD_ENOMEM, "no memory for a command line");
    if (st == XD_OK)
        st = xd_opt_parse(&t->spec, all.options.n + all.plan.n, argv, &t->operands, &t->err);
    free(argv);
    t->opts.resume = dir;
    return st;
}

static int run_command(int argc, char **argv)
{
    task t;
    int  code = xd_compat_torchrun("generate"), ranks = 1;
    if (code != XD_EXIT_OK)
        return code;
    task_init(&t);
    t.no_arguments = argc == 0;
    xd_status st = xd_opt_parse(&t.spec, argc, argv, &t.operands, &t.err);
    if (st == XD_OK && t.operands.n)
        t.noted = xd_resume_add(&t.resume, "prompt", t.operands.v[0], 0, &t.err);
    if (st == XD_OK && t.opts.resume)
        st = resume_task(&t);
    if (t.launched)
        xd_stop_arm_rank(), xd_launch_deadline(t.open.start_timeout, t.rank);
    else
        xd_stop_arm();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not kill the process */
    signal(SIGXFSZ, SIG_IGN); /* writing beyond ulimit -f becomes an error instead of a signal */
    if (st == XD_OK)
        st = check_task(&t, &ranks);
    if (st == XD_OK)
        st = ranks > 1 || t.hosts.n ? launch_ranks(&t, ranks, argc, argv, &code) : run_generate(&t);
    if (st != XD_OK)
        code = fail_task(&t, st);
    if (code == XD_EXIT_OK)
        code = xd_cli_flush();
    free_task(&t);
    xd_resume_free(&t.resume);
    xd_resume_free(&t.resumed);
    if (st == XD_ECOMM) /* _exit skips exit handlers of MPI, which would hang */
        _exit(code);
    return code;
}

/* A section of the help text. The section lists options of xdit generate, and the options of a
 * request whose section has the same title. */
typedef struct section {
    /* names of the options of xdit generate that the short help text lists (main), and of the
     * others (rest) */
    const char *title, *main, *rest;
    char        names[1024];
} section;

static void add_names(section *s, const xd_opt_table *request, const char *own, int is_main)
{
    size_t at = strlen(s->names);
    if (*own)
        at += (size_t)snprintf(s->names + at, sizeof s->names - at, "%s ", own);
    for (int i = 0; i < request->n && at < sizeof s->names; i++) {
        const xd_option_about *a = xd_request_option_about(request->rows[i].name);
        if (a && strcmp(a->section, s->title) == 0 && a->main == is_main)
            at +=
                (size_t)snprintf(s->names + at, sizeof s->names - at, "%s ", request->rows[i].name);
    }
}

/* Returns the names of the section's options as a text for the field `names` of xd_opt_group. */
static const char *list_section(section *s, const xd_opt_table *request)
{
    add_names(s, request, s->main, 1);
    add_names(s, request, "|", 0);
    add_names(s, &(xd_opt_table){ 0 }, s->rest, 0);
    return s->names;
}

static void print_help(FILE *f)
{
    task t;
    task_init(&t);
    char   *ranks = xd_opt_names("nproc plan ulysses_degree ring_degree pipefusion_parallel_degree "
                                 "use_cfg_parallel | start_timeout verify_weights cluster balance",
                                 t.tables[3].rows, t.tables[3].n);
    section own[] = {
        { "What to generate", "prompt", "prompts", "" },
        { "Model and output", "model lora output",
          "transformer transformer_2 vae clip_l clip_g t5xxl llm clip_vision controlnet redux "
          "latent_upsampler upscale lora_2 lora_partial skip_existing",
          "" },
        { "How to generate", "", "", "" },
        { "Guidance", "", "", "" },
        { "Scheduler", "", "", "" },
        { "Latent upsampler", "", "", "" },
        { "Input images", "", "", "" },
        { "Faster, with a different image", "", "", "" },
        { "This machine", "dtype weights_dtype device offload threads",
          "text_weights_dtype bind memory fit", "" },
        { "Several ranks", ranks ? ranks : "", "", "" },
        { "Log and output", "quiet json",
          "verbose compare preview preview_decoder trace resume max_restarts rank_timeout hosts "
          "spare",
          "" },
    };
    enum { OWN = sizeof own / sizeof *own };
    xd_opt_group groups[OWN + 1];
    for (int i = 0; i < OWN; i++)
        groups[i] = (xd_opt_group){ own[i].title, list_section(&own[i], &t.tables[2]) };
    groups[OWN] = (xd_opt_group){ "More", NULL };
    int more = 0;
    for (int i = 0; i < t.tables[2].n; i++)
        more += !xd_opt_grouped(groups, OWN, t.tables[2].rows[i].name);
    fputs("Usage: xdit generate [--model DIR] [--prompt] TEXT [options]\n\n"
          "Generates images or videos from prompts and prints the names of their files.\n"
          "Options may be written --num_frames 9, --num-frames 9 or --num_frames=9.\n",
          f);
    xd_opt_help(f, &t.spec, groups, OWN + (more > 0));
    fputs("\nExample:\n"
          "  xdit generate --model models/demo-pixart --seed 7 --output demo.png \\\n"
          "    --prompt \"a large red circle on a blue background\"\n",
          f);
    free(ranks);
}

const xd_command xd_cmd_generate = {
    .name = "generate",
    .summary = "generate images or videos from prompts",
    .run = run_command,
    .help = print_help,
};
