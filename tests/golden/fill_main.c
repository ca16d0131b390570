/* fill_main.c - a model directory with weights that follow from the names of its tensors
 *
 *     fill FROM TO [f32|f16|bf16]         one model: FROM has configurations and tokenizers
 *     fill FROM TO all NOTES TARGET       all of tests/golden; see fill.h */
#include <stdio.h>
#include <string.h>

#include "fill.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FROM TO [f32|f16|bf16]\n", argv[0]);
        return 2;
    }
    if (argc == 6 && strcmp(argv[3], "all") == 0)
        fill_all(argv[1], argv[2], argv[4], argv[5]);
    else
        fill_model(argv[1], argv[2], fill_type(argc > 3 ? argv[3] : "f32"));
    return 0;
}
