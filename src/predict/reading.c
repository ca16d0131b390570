/* reading.c - how long a request waits for the disk */
#include "predict/predict.h"

#include <math.h>

double xd_reading_wait_s(double cold, double speed, double room, double beside_s)
{
    double ahead = cold < XD_PREFETCH_LEAST || room < XD_PREFETCH_LEAST ? 0 : fmin(cold, room);
    return cold / speed - fmin(ahead / speed, beside_s);
}

double xd_predicted_reading(const xd_prediction *f)
{
    double s = 0;
    for (int k = 0; k < XD_KINDS; k++)
        s += f->read_s[k];
    return s;
}

double xd_predicted_reading_to_decode(const xd_prediction *f)
{
    return f->early ? 0 : f->read_s[XD_KIND_VAE];
}

double xd_predicted_reading_to_load(const xd_prediction *f)
{
    return f->read_s[XD_KIND_DIT] + (f->early ? f->read_s[XD_KIND_VAE] : 0);
}
