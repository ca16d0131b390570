/* fill_main.c - a model directory with weights that follow from the names of its tensors
 *
 *     fill FROM TO [f32|f16|bf16]
 *
 * FROM has configurations and tokenizers; see fill.h. For tests that start xdit as a program. */
#include <stdio.h>

#include "fill.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FROM TO [f32|f16|bf16]\n", argv[0]);
        return 2;
    }
    fill_model(argv[1], argv[2], fill_type(argc > 3 ? argv[3] : "f32"));
    return 0;
}
