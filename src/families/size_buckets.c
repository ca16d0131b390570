/* size_buckets.c - replaces a requested image size by one of the sizes on which the model was
 * trained: the size with the nearest aspect ratio */
#include "families/recipe.h"

#include <math.h>

void xd_size_bucket_nearest(const xd_size_bucket *table, int n, int64_t *height, int64_t *width)
{
    const xd_size_bucket *best = table;
    double                ratio = (double)*height / (double)*width;
    for (const xd_size_bucket *b = table + 1; b < table + n; b++)
        if (fabs(b->ratio - ratio) < fabs(best->ratio - ratio))
            best = b;
    *height = best->height;
    *width = best->width;
}
