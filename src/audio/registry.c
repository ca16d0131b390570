/* registry.c - lists all networks of audio */
#include "audio/audio.h"

#include <stddef.h>

extern const xd_audio xd_audio_spectrogram, xd_audio_vocoder, xd_audio_bandwidth;
extern const xd_audio xd_audio_minimaxh3;

const xd_audio *const xd_audios[] = { &xd_audio_spectrogram, &xd_audio_vocoder, &xd_audio_bandwidth,
                                      &xd_audio_minimaxh3, NULL };
