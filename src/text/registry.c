/* registry.c - the text encoders there are: a new one is a file and a line here */
#include "text/text.h"

extern const xd_text xd_text_t5;

const xd_text *const xd_text_encoders[] = { &xd_text_t5, NULL };
