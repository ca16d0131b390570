/* wav.h - writes sound to WAV files. */
#ifndef XD_IO_WAV_H
#define XD_IO_WAV_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_sound {
    const float *samples; /* samples [n,channels] from -1 to 1 */
    int64_t      n;
    int          channels, rate; /* rate: number of samples per second */
} xd_sound;

/* Returns 1 if the file name extension of `path` is .wav. */
int       xd_wav_known(const char *path);
/* Writes a WAV file with 16-bit integers: the samples, clamped to [-1, 1], times 32767 and rounded
 * towards 0. */
xd_status xd_wav_write(const char *path, const xd_sound *s, xd_err *e);

#endif
