/* registry.c - the autoencoders that are built in */
#include <stddef.h>

#include "vae/vae.h"

extern const xd_vae xd_vae_kl;

const xd_vae *const xd_vaes[] = { &xd_vae_kl, NULL };
