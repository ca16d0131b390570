/* generate.c - a minimal program with libxdit: generate MODEL PROMPT FILE [STEPS]
 *
 *   cc generate.c $(pkg-config --cflags --libs xdit) -o generate */
#include <stdio.h>
#include <stdlib.h>

#include <xdit/xdit.h>

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: generate MODEL PROMPT FILE [STEPS]\n");
        return 2;
    }
    xd_err       e = { 0 };
    xd_open_args a;
    xd_engine   *engine = NULL;
    xd_result   *image = NULL;
    xd_request   r;

    xd_open_args_init(&a);
    a.model = argv[1];
    xd_request_init(&r);
    r.prompts = (const char *const *)&argv[2];
    r.nprompts = 1;
    r.num_inference_steps = argc > 4 ? atoi(argv[4]) : 0; /* 0: the pipeline's number */

    if (xd_open(&engine, &a, &e) != XD_OK || xd_generate(engine, &r, &image, &e) != XD_OK ||
        xd_result_save(image, 0, argv[3], &e) != XD_OK)
        fprintf(stderr, "generate: %s\n", e.msg);
    xd_result_free(&image);
    xd_close(&engine);
    return e.code == XD_OK ? 0 : 1;
}
