/* mojibake.c - repairs text that was decoded with a wrong character set, like ftfy 6.3.
 *
 * If UTF-8 was decoded as one of ten single-byte character sets, the text has sequences that rarely
 * occur in meaningful text (`unlikely`). Text with unlikely sequences is encoded back to bytes,
 * which are decoded as UTF-8. If the bytes are not valid UTF-8, only the parts that look like UTF-8
 * are repaired, and control characters above 0x7f are replaced by the characters of
 * Windows-1252. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- character sets ------------------------------------------------------------------------- */

enum { LATIN1, CP1252, CP1251, CP1250, CP1253, CP1254, CP1257, LATIN2, MACROMAN, CP437, CHARSETS };

/* For each character set, the code points of the bytes from 0x80 to 0xff. A byte without a
 * character is mapped to its own value. */
static const uint16_t high[CHARSETS][128] = {
    { 0 }, /* Latin-1: each byte is its own code point */
    {
        /* windows-1252 */
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
        0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178,  0xa0,
        0xa1,   0xa2,   0xa3,   0xa4,   0xa5,   0xa6,   0xa7,   0xa8,   0xa9,   0xaa,   0xab,
        0xac,   0xad,   0xae,   0xaf,   0xb0,   0xb1,   0xb2,   0xb3,   0xb4,   0xb5,   0xb6,
        0xb7,   0xb8,   0xb9,   0xba,   0xbb,   0xbc,   0xbd,   0xbe,   0xbf,   0xc0,   0xc1,
        0xc2,   0xc3,   0xc4,   0xc5,   0xc6,   0xc7,   0xc8,   0xc9,   0xca,   0xcb,   0xcc,
        0xcd,   0xce,   0xcf,   0xd0,   0xd1,   0xd2,   0xd3,   0xd4,   0xd5,   0xd6,   0xd7,
        0xd8,   0xd9,   0xda,   0xdb,   0xdc,   0xdd,   0xde,   0xdf,   0xe0,   0xe1,   0xe2,
        0xe3,   0xe4,   0xe5,   0xe6,   0xe7,   0xe8,   0xe9,   0xea,   0xeb,   0xec,   0xed,
        0xee,   0xef,   0xf0,   0xf1,   0xf2,   0xf3,   0xf4,   0xf5,   0xf6,   0xf7,   0xf8,
        0xf9,   0xfa,   0xfb,   0xfc,   0xfd,   0xfe,   0xff,
    },
    {
        /* windows-1251 */
        0x402,  0x403,  0x201a, 0x453,  0x201e, 0x2026, 0x2020, 0x2021, 0x20ac, 0x2030, 0x409,
        0x2039, 0x40a,  0x40c,  0x40b,  0x40f,  0x452,  0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x98,   0x2122, 0x459,  0x203a, 0x45a,  0x45c,  0x45b,  0x45f,  0xa0,
        0x40e,  0x45e,  0x408,  0xa4,   0x490,  0xa6,   0xa7,   0x401,  0xa9,   0x404,  0xab,
        0xac,   0xad,   0xae,   0x407,  0xb0,   0xb1,   0x406,  0x456,  0x491,  0xb5,   0xb6,
        0xb7,   0x451,  0x2116, 0x454,  0xbb,   0x458,  0x405,  0x455,  0x457,  0x410,  0x411,
        0x412,  0x413,  0x414,  0x415,  0x416,  0x417,  0x418,  0x419,  0x41a,  0x41b,  0x41c,
        0x41d,  0x41e,  0x41f,  0x420,  0x421,  0x422,  0x423,  0x424,  0x425,  0x426,  0x427,
        0x428,  0x429,  0x42a,  0x42b,  0x42c,  0x42d,  0x42e,  0x42f,  0x430,  0x431,  0x432,
        0x433,  0x434,  0x435,  0x436,  0x437,  0x438,  0x439,  0x43a,  0x43b,  0x43c,  0x43d,
        0x43e,  0x43f,  0x440,  0x441,  0x442,  0x443,  0x444,  0x445,  0x446,  0x447,  0x448,
        0x449,  0x44a,  0x44b,  0x44c,  0x44d,  0x44e,  0x44f,
    },
    {
        /* windows-1250 */
        0x20ac, 0x81,   0x201a, 0x83,   0x201e, 0x2026, 0x2020, 0x2021, 0x88,   0x2030, 0x160,
        0x2039, 0x15a,  0x164,  0x17d,  0x179,  0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x98,   0x2122, 0x161,  0x203a, 0x15b,  0x165,  0x17e,  0x17a,  0xa0,
        0x2c7,  0x2d8,  0x141,  0xa4,   0x104,  0xa6,   0xa7,   0xa8,   0xa9,   0x15e,  0xab,
        0xac,   0xad,   0xae,   0x17b,  0xb0,   0xb1,   0x2db,  0x142,  0xb4,   0xb5,   0xb6,
        0xb7,   0xb8,   0x105,  0x15f,  0xbb,   0x13d,  0x2dd,  0x13e,  0x17c,  0x154,  0xc1,
        0xc2,   0x102,  0xc4,   0x139,  0x106,  0xc7,   0x10c,  0xc9,   0x118,  0xcb,   0x11a,
        0xcd,   0xce,   0x10e,  0x110,  0x143,  0x147,  0xd3,   0xd4,   0x150,  0xd6,   0xd7,
        0x158,  0x16e,  0xda,   0x170,  0xdc,   0xdd,   0x162,  0xdf,   0x155,  0xe1,   0xe2,
        0x103,  0xe4,   0x13a,  0x107,  0xe7,   0x10d,  0xe9,   0x119,  0xeb,   0x11b,  0xed,
        0xee,   0x10f,  0x111,  0x144,  0x148,  0xf3,   0xf4,   0x151,  0xf6,   0xf7,   0x159,
        0x16f,  0xfa,   0x171,  0xfc,   0xfd,   0x163,  0x2d9,
    },
    {
        /* windows-1253 */
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x88,   0x2030, 0x8a,
        0x2039, 0x8c,   0x8d,   0x8e,   0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x98,   0x2122, 0x9a,   0x203a, 0x9c,   0x9d,   0x9e,   0x9f,   0xa0,
        0x385,  0x386,  0xa3,   0xa4,   0xa5,   0xa6,   0xa7,   0xa8,   0xa9,   0xaa,   0xab,
        0xac,   0xad,   0xae,   0x2015, 0xb0,   0xb1,   0xb2,   0xb3,   0x384,  0xb5,   0xb6,
        0xb7,   0x388,  0x389,  0x38a,  0xbb,   0x38c,  0xbd,   0x38e,  0x38f,  0x390,  0x391,
        0x392,  0x393,  0x394,  0x395,  0x396,  0x397,  0x398,  0x399,  0x39a,  0x39b,  0x39c,
        0x39d,  0x39e,  0x39f,  0x3a0,  0x3a1,  0xd2,   0x3a3,  0x3a4,  0x3a5,  0x3a6,  0x3a7,
        0x3a8,  0x3a9,  0x3aa,  0x3ab,  0x3ac,  0x3ad,  0x3ae,  0x3af,  0x3b0,  0x3b1,  0x3b2,
        0x3b3,  0x3b4,  0x3b5,  0x3b6,  0x3b7,  0x3b8,  0x3b9,  0x3ba,  0x3bb,  0x3bc,  0x3bd,
        0x3be,  0x3bf,  0x3c0,  0x3c1,  0x3c2,  0x3c3,  0x3c4,  0x3c5,  0x3c6,  0x3c7,  0x3c8,
        0x3c9,  0x3ca,  0x3cb,  0x3cc,  0x3cd,  0x3ce,  0xff,
    },
    {
        /* windows-1254 */
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
        0x2039, 0x152,  0x8d,   0x8e,   0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x9e,   0x178,  0xa0,
        0xa1,   0xa2,   0xa3,   0xa4,   0xa5,   0xa6,   0xa7,   0xa8,   0xa9,   0xaa,   0xab,
        0xac,   0xad,   0xae,   0xaf,   0xb0,   0xb1,   0xb2,   0xb3,   0xb4,   0xb5,   0xb6,
        0xb7,   0xb8,   0xb9,   0xba,   0xbb,   0xbc,   0xbd,   0xbe,   0xbf,   0xc0,   0xc1,
        0xc2,   0xc3,   0xc4,   0xc5,   0xc6,   0xc7,   0xc8,   0xc9,   0xca,   0xcb,   0xcc,
        0xcd,   0xce,   0xcf,   0x11e,  0xd1,   0xd2,   0xd3,   0xd4,   0xd5,   0xd6,   0xd7,
        0xd8,   0xd9,   0xda,   0xdb,   0xdc,   0x130,  0x15e,  0xdf,   0xe0,   0xe1,   0xe2,
        0xe3,   0xe4,   0xe5,   0xe6,   0xe7,   0xe8,   0xe9,   0xea,   0xeb,   0xec,   0xed,
        0xee,   0xef,   0x11f,  0xf1,   0xf2,   0xf3,   0xf4,   0xf5,   0xf6,   0xf7,   0xf8,
        0xf9,   0xfa,   0xfb,   0xfc,   0x131,  0x15f,  0xff,
    },
    {
        /* windows-1257 */
        0x20ac, 0x81,   0x201a, 0x83,   0x201e, 0x2026, 0x2020, 0x2021, 0x88,   0x2030, 0x8a,
        0x2039, 0x8c,   0xa8,   0x2c7,  0xb8,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x98,   0x2122, 0x9a,   0x203a, 0x9c,   0xaf,   0x2db,  0x9f,   0xa0,
        0xa1,   0xa2,   0xa3,   0xa4,   0xa5,   0xa6,   0xa7,   0xd8,   0xa9,   0x156,  0xab,
        0xac,   0xad,   0xae,   0xc6,   0xb0,   0xb1,   0xb2,   0xb3,   0xb4,   0xb5,   0xb6,
        0xb7,   0xf8,   0xb9,   0x157,  0xbb,   0xbc,   0xbd,   0xbe,   0xe6,   0x104,  0x12e,
        0x100,  0x106,  0xc4,   0xc5,   0x118,  0x112,  0x10c,  0xc9,   0x179,  0x116,  0x122,
        0x136,  0x12a,  0x13b,  0x160,  0x143,  0x145,  0xd3,   0x14c,  0xd5,   0xd6,   0xd7,
        0x172,  0x141,  0x15a,  0x16a,  0xdc,   0x17b,  0x17d,  0xdf,   0x105,  0x12f,  0x101,
        0x107,  0xe4,   0xe5,   0x119,  0x113,  0x10d,  0xe9,   0x17a,  0x117,  0x123,  0x137,
        0x12b,  0x13c,  0x161,  0x144,  0x146,  0xf3,   0x14d,  0xf5,   0xf6,   0xf7,   0x173,
        0x142,  0x15b,  0x16b,  0xfc,   0x17c,  0x17e,  0x2d9,
    },
    {
        /* iso-8859-2 */
        0x80,  0x81,  0x82,  0x83,  0x84,  0x85,  0x86,  0x87,  0x88,  0x89,  0x8a,  0x8b,  0x8c,
        0x8d,  0x8e,  0x8f,  0x90,  0x91,  0x92,  0x93,  0x94,  0x95,  0x96,  0x97,  0x98,  0x99,
        0x9a,  0x9b,  0x9c,  0x9d,  0x9e,  0x9f,  0xa0,  0x104, 0x2d8, 0x141, 0xa4,  0x13d, 0x15a,
        0xa7,  0xa8,  0x160, 0x15e, 0x164, 0x179, 0xad,  0x17d, 0x17b, 0xb0,  0x105, 0x2db, 0x142,
        0xb4,  0x13e, 0x15b, 0x2c7, 0xb8,  0x161, 0x15f, 0x165, 0x17a, 0x2dd, 0x17e, 0x17c, 0x154,
        0xc1,  0xc2,  0x102, 0xc4,  0x139, 0x106, 0xc7,  0x10c, 0xc9,  0x118, 0xcb,  0x11a, 0xcd,
        0xce,  0x10e, 0x110, 0x143, 0x147, 0xd3,  0xd4,  0x150, 0xd6,  0xd7,  0x158, 0x16e, 0xda,
        0x170, 0xdc,  0xdd,  0x162, 0xdf,  0x155, 0xe1,  0xe2,  0x103, 0xe4,  0x13a, 0x107, 0xe7,
        0x10d, 0xe9,  0x119, 0xeb,  0x11b, 0xed,  0xee,  0x10f, 0x111, 0x144, 0x148, 0xf3,  0xf4,
        0x151, 0xf6,  0xf7,  0x159, 0x16f, 0xfa,  0x171, 0xfc,  0xfd,  0x163, 0x2d9,
    },
    {
        /* macroman */
        0xc4,   0xc5,   0xc7,   0xc9,   0xd1,   0xd6,   0xdc,   0xe1,   0xe0,   0xe2,   0xe4,
        0xe3,   0xe5,   0xe7,   0xe9,   0xe8,   0xea,   0xeb,   0xed,   0xec,   0xee,   0xef,
        0xf1,   0xf3,   0xf2,   0xf4,   0xf6,   0xf5,   0xfa,   0xf9,   0xfb,   0xfc,   0x2020,
        0xb0,   0xa2,   0xa3,   0xa7,   0x2022, 0xb6,   0xdf,   0xae,   0xa9,   0x2122, 0xb4,
        0xa8,   0x2260, 0xc6,   0xd8,   0x221e, 0xb1,   0x2264, 0x2265, 0xa5,   0xb5,   0x2202,
        0x2211, 0x220f, 0x3c0,  0x222b, 0xaa,   0xba,   0x3a9,  0xe6,   0xf8,   0xbf,   0xa1,
        0xac,   0x221a, 0x192,  0x2248, 0x2206, 0xab,   0xbb,   0x2026, 0xa0,   0xc0,   0xc3,
        0xd5,   0x152,  0x153,  0x2013, 0x2014, 0x201c, 0x201d, 0x2018, 0x2019, 0xf7,   0x25ca,
        0xff,   0x178,  0x2044, 0x20ac, 0x2039, 0x203a, 0xfb01, 0xfb02, 0x2021, 0xb7,   0x201a,
        0x201e, 0x2030, 0xc2,   0xca,   0xc1,   0xcb,   0xc8,   0xcd,   0xce,   0xcf,   0xcc,
        0xd3,   0xd4,   0xf8ff, 0xd2,   0xda,   0xdb,   0xd9,   0x131,  0x2c6,  0x2dc,  0xaf,
        0x2d8,  0x2d9,  0x2da,  0xb8,   0x2dd,  0x2db,  0x2c7,
    },
    {
        /* cp437 */
        0xc7,   0xfc,   0xe9,   0xe2,   0xe4,   0xe0,   0xe5,   0xe7,   0xea,   0xeb,   0xe8,
        0xef,   0xee,   0xec,   0xc4,   0xc5,   0xc9,   0xe6,   0xc6,   0xf4,   0xf6,   0xf2,
        0xfb,   0xf9,   0xff,   0xd6,   0xdc,   0xa2,   0xa3,   0xa5,   0x20a7, 0x192,  0xe1,
        0xed,   0xf3,   0xfa,   0xf1,   0xd1,   0xaa,   0xba,   0xbf,   0x2310, 0xac,   0xbd,
        0xbc,   0xa1,   0xab,   0xbb,   0x2591, 0x2592, 0x2593, 0x2502, 0x2524, 0x2561, 0x2562,
        0x2556, 0x2555, 0x2563, 0x2551, 0x2557, 0x255d, 0x255c, 0x255b, 0x2510, 0x2514, 0x2534,
        0x252c, 0x251c, 0x2500, 0x253c, 0x255e, 0x255f, 0x255a, 0x2554, 0x2569, 0x2566, 0x2560,
        0x2550, 0x256c, 0x2567, 0x2568, 0x2564, 0x2565, 0x2559, 0x2558, 0x2552, 0x2553, 0x256b,
        0x256a, 0x2518, 0x250c, 0x2588, 0x2584, 0x258c, 0x2590, 0x2580, 0x3b1,  0xdf,   0x393,
        0x3c0,  0x3a3,  0x3c3,  0xb5,   0x3c4,  0x3a6,  0x398,  0x3a9,  0x3b4,  0x221e, 0x3c6,
        0x3b5,  0x2229, 0x2261, 0xb1,   0x2265, 0x2264, 0x2320, 0x2321, 0xf7,   0x2248, 0xb0,
        0x2219, 0xb7,   0x221a, 0x207f, 0xb2,   0x25a0, 0xa0,
    },
};

/* Returns 1 for the Windows character sets. In the Windows sets, some bytes have no character, and
 * byte 0x1a represents U+FFFD. */
static int is_windows(int set)
{
    return set >= CP1252 && set <= CP1257;
}

static int32_t code_of(int set, int byte)
{
    if (byte == 0x1a && is_windows(set))
        return 0xfffd;
    return byte < 0x80 || set == LATIN1 ? byte : high[set][byte - 0x80];
}

/* Returns the byte of a character in a character set, or -1 if the set does not have the
 * character. */
static int byte_of(int set, int32_t c)
{
    if (c == 0xfffd && is_windows(set))
        return 0x1a;
    if (c < 0x80 || (set == LATIN1 && c < 0x100))
        return c == 0x1a && is_windows(set) ? -1 : (int)c;
    for (int i = 0; set != LATIN1 && i < 128; i++)
        if (high[set][i] == c)
            return i + 0x80;
    return -1;
}

int32_t xd_windows_code(int byte)
{
    return code_of(CP1252, byte);
}

/* Encodes the text in a character set. Returns 0 if the set does not have one of the text's
 * characters. */
static int encode(const xd_bytes_buf *text, int set, xd_bytes_buf *out)
{
    size_t took;
    out->len = 0;
    for (size_t i = 0; i < text->len; i += took) {
        int  b = byte_of(set, xd_utf8_get(text->p + i, text->len - i, &took));
        char c = (char)b;
        if (b < 0)
            return 0;
        xd_bytes_add(out, &c, 1);
    }
    return 1;
}

/* ---- sequences that rarely occur in meaningful text ----------------------------------------- */

#define C1       "\\x{80}-\\x{9f}"
#define COMMON   "\\x{a0}\\x{ad}\\x{b4}\\x{b7}\\x{2013}-\\x{2015}\\x{2019}\\x{2026}"
#define BAD      "\\x{a4}\\x{a6}\\x{a8}\\x{aa}\\x{ac}\\x{af}\\x{b8}\\x{ba}\\x{192}\\x{2c6}" \
    "\\x{2c7}\\x{2d8}\\x{2db}\\x{2dc}\\x{2020}\\x{2021}\\x{2030}\\x{2310}\\x{25ca}\\x{fffd}"
#define LAW      "\\x{a7}\\x{b6}"
#define CURRENCY "\\x{a2}\\x{a3}\\x{a5}\\x{20a7}\\x{20ac}"
#define OPENING  "\\x{a1}\\x{a9}\\x{ab}\\x{bf}\\x{384}\\x{385}\\x{2018}\\x{201a}\\x{201c}" \
    "\\x{201e}\\x{2022}\\x{2039}\\x{f8ff}"
#define CLOSING  "\\x{ae}\\x{bb}\\x{2dd}\\x{201d}\\x{203a}\\x{2122}"
#define NUMERIC  "\\x{b1}-\\x{b3}\\x{b5}\\x{b9}\\x{bc}-\\x{be}\\x{d7}\\x{f7}\\x{2044}\\x{2116}" \
    "\\x{2202}\\x{2206}\\x{220f}\\x{2211}\\x{221a}\\x{221e}\\x{2229}\\x{222b}\\x{2248}\\x{2260}" \
    "\\x{2261}\\x{2264}\\x{2265}"
#define FACES    "\\x{b0}\\x{d2}-\\x{d6}\\x{d9}-\\x{dc}\\x{f2}-\\x{f6}\\x{f8}-\\x{fc}\\x{14c}" \
    "\\x{150}\\x{16a}\\x{172}"
#define UPPER    "\\x{c0}-\\x{d1}\\x{d8}\\x{dc}\\x{dd}\\x{100}\\x{102}\\x{104}\\x{106}\\x{10c}" \
    "\\x{10e}\\x{110}\\x{112}\\x{116}\\x{118}\\x{11a}\\x{11e}\\x{122}\\x{12a}\\x{130}\\x{136}" \
    "\\x{139}\\x{13b}\\x{13d}\\x{141}\\x{143}\\x{145}\\x{147}\\x{152}\\x{158}\\x{15a}\\x{15e}" \
    "\\x{160}\\x{162}\\x{164}\\x{16e}\\x{170}\\x{178}\\x{179}\\x{17b}\\x{17d}\\x{490}"
#define LOWER    "\\x{df}-\\x{f1}\\x{fc}\\x{101}\\x{103}\\x{105}\\x{107}\\x{10d}\\x{10f}\\x{111}" \
    "\\x{113}\\x{117}\\x{119}\\x{11b}\\x{11f}\\x{123}\\x{12b}\\x{12f}\\x{137}\\x{13a}\\x{13c}" \
    "\\x{13e}\\x{142}\\x{153}\\x{155}\\x{15b}\\x{15f}\\x{161}\\x{165}\\x{17a}\\x{17c}\\x{17e}" \
    "\\x{491}\\x{fb01}\\x{fb02}"
#define CAPITAL  "\\x{de}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}\\x{38f}\\x{391}-\\x{3ab}" \
    "\\x{401}-\\x{42f}"
#define SMALL    "\\x{3ac}-\\x{3c9}\\x{430}-\\x{45f}"
#define BOX      "\\x{2502}\\x{250c}\\x{2510}\\x{2518}\\x{251c}\\x{2524}\\x{252c}\\x{253c}" \
    "\\x{2550}-\\x{256c}\\x{2580}\\x{2584}\\x{2588}\\x{258c}\\x{2590}-\\x{2593}"
#define MARKED   BAD "\\x{178}\\x{160}\\x{ae}\\x{b0}\\x{b5}\\x{bb}" COMMON CURRENCY NUMERIC OPENING
#define SIGNS    LOWER UPPER BOX OPENING CLOSING CURRENCY NUMERIC LAW

static const char *const unlikely[] = {
    "[" C1 "]",
    "[" BAD SIGNS "][" BAD "]",
    "[a-zA-Z][" SMALL CAPITAL "][" BAD "]",
    "[" BAD "][" SIGNS "]",
    "[" LOWER SMALL BOX CLOSING CURRENCY NUMERIC "][" UPPER "]",
    "[" BOX CLOSING             CURRENCY NUMERIC "][" LOWER "]",
    "[" LOWER                   BOX CLOSING "][" CURRENCY "]",
    "[" XD_SPACES "][" UPPER "][" CURRENCY "]",
    "[" UPPER BOX "][" NUMERIC LAW "]",
    "[" LOWER UPPER BOX              CURRENCY CLOSING "][" OPENING "][" NUMERIC "]",
    "[" LOWER UPPER CURRENCY NUMERIC BOX LAW "][" CLOSING "][" OPENING "]",
    "[" CURRENCY                     NUMERIC BOX "][" OPENING "]",
    "[a-z][" UPPER "][" OPENING CURRENCY "]",
    "[" BOX "][" FACES "]",
    "[" LOWER UPPER CURRENCY NUMERIC OPENING CLOSING LAW "][" BOX "]",
    "[" BOX "][" CLOSING "]",
    "[" LOWER UPPER "][" OPENING CLOSING "][" XD_LETTERS "]",
    "[\\x{152}\\x{153}][^A-Za-z]",
    "[" UPPER "]\\x{b0}",
    /* Windows-1252 */
    "[\\x{c2}\\x{c3}\\x{ce}\\x{d0}][\\x{20ac}\\x{153}\\x{160}\\x{161}\\x{a2}\\x{a3}\\x{178}\\x{17e}"
    "\\x{a0}\\x{ad}\\x{ae}\\x{a9}\\x{b0}\\x{b7}\\x{bb}" OPENING CLOSING
    "\\x{2013}\\x{2014}\\x{b4}]",
    "\\x{d7}[\\x{b2}\\x{b3}]",
    "(?:[\\x{d8}\\x{d9}][" MARKED "]){2}",
    "\\x{e0}[\\x{b2}\\x{b5}\\x{b9}\\x{bc}-\\x{be}]",
    /* Macintosh */
    "\\x{221a}[\\x{b1}\\x{2202}\\x{2020}\\x{2260}\\x{ae}\\x{2122}\\x{b4}\\x{2264}\\x{2265}\\x{a5}"
    "\\x{b5}\\x{f8}]",
    "\\x{2248}[\\x{b0}\\x{a2}]",
    "\\x{201a}\\x{c4}[\\x{ec}\\x{ee}\\x{ef}\\x{f2}\\x{f4}\\x{fa}\\x{f9}\\x{fb}\\x{2020}\\x{b0}"
    "\\x{a2}\\x{3c0}]",
    "\\x{201a}[\\x{e2}\\x{f3}][\\x{e0}\\x{e4}\\x{b0}\\x{ea}]",
    /* Windows-1251 */
    "\\x{432}\\x{402}",
    "[\\x{412}\\x{413}\\x{420}\\x{421}][" C1 BAD OPENING CLOSING CURRENCY "\\x{b0}\\x{b5}]"
    "[\\x{412}\\x{413}\\x{420}\\x{421}]",
    "\\x{413}\\x{45e}\\x{412}\\x{402}\\x{412}[^\\n][A-Za-z ]",
    /* a space that was a no-break space before */
    "\\x{c3}[\\x{a0}\\x{a1}]",
    "[a-z][" XD_SPACES "]?[\\x{c3}\\x{c2}] ",
    "^[\\x{c3}\\x{c2}] ",
    "[a-z.,?!" CLOSING "]\\x{c2}[ " OPENING CLOSING "]",
    /* Windows-1253, Windows-1257 */
    "\\x{3b2}\\x{20ac}[\\x{2122}\\x{a0}\\x{386}\\x{ad}\\x{ae}\\x{b0}]",
    "[\\x{392}\\x{393}\\x{39e}\\x{39f}][" C1 BAD OPENING CLOSING CURRENCY "\\x{b0}]"
    "[\\x{392}\\x{393}\\x{39e}\\x{39f}]",
    "\\x{101}\\x{20ac}",
};

static xd_finder *open_unlikely(void)
{
    xd_bytes_buf b = { 0 };
    xd_finder   *f = NULL;
    for (size_t i = 0; i < sizeof unlikely / sizeof *unlikely; i++) {
        xd_bytes_add(&b, i ? "|" : "", i ? 1 : 0);
        xd_bytes_add(&b, unlikely[i], strlen(unlikely[i]));
    }
    xd_bytes_add(&b, "", 1);
    if (!b.failed)
        f = xd_finder_open(b.p, 0);
    xd_bytes_free(&b);
    return f;
}

/* ---- bytes that are almost UTF-8 ------------------------------------------------------------ */

/* The bytes that can continue a UTF-8 character, and patterns of UTF-8 sequences in which byte 0xa0
 * was replaced by a space. */
#define NEXT  "[\\x80-\\xbf]"
#define OTHER "[\\x80-\\x84\\x86-\\x9f\\xa1-\\xbf]"
static const char blank_inside[] =
    "[\\xc2\\xc3\\xc5\\xce\\xd0\\xd9] |[\\xe2\\xe3] " OTHER "|[\\xe0-\\xe3]" OTHER " "
    "|\\xf0 " NEXT NEXT "|\\xf0" NEXT " " NEXT "|\\xf0" NEXT NEXT " ";
/* If bytes 0xa0 of a text became spaces, "\xc3 " is an "à" at the end of a word, except in a few
 * Portuguese phrases. */
static const char blank_behind[] = "\\xc3 (?! |quele|quela|quilo|s )";

/* Bytes of a UTF-8 character that were lost are represented by 0x1a or a question mark; at most one
 * byte per character. */
#define LOST  "[\\x1a\\x80-\\xbf]"
#define GONE  "[\\x1a?]"
#define ANY   "[\\x1a?\\x80-\\xbf]"
static const char lost_inside[] = "[\\xc2-\\xdf]\\x1a|[\\xc2\\xc3]\\?"
                                  "|\\xed[\\xa0-\\xaf]" GONE "\\xed[\\xb0-\\xbf]" ANY
                                  "|\\xed[\\xa0-\\xaf]" ANY "\\xed[\\xb0-\\xbf]" GONE
                                  "|[\\xe0-\\xef]" GONE LOST "|[\\xe0-\\xef]" LOST GONE
                                  "|[\\xf0-\\xf4]" GONE LOST LOST "|[\\xf0-\\xf4]" LOST GONE LOST
                                  "|[\\xf0-\\xf4]" LOST LOST GONE "|\\x1a";

static void restore_blanks(xd_bytes_buf *bytes)
{
    xd_finder *f = xd_finder_open(blank_inside, XD_FIND_BYTES);
    size_t     span[2];
    bytes->failed |= !f;
    if (f && xd_finder_next(f, bytes->p, bytes->len, 0, 0, span, 1)) {
        xd_replace(bytes, blank_behind, "\xc3\xa0 ", XD_FIND_BYTES);
        for (size_t at = 0; xd_finder_next(f, bytes->p, bytes->len, at, 0, span, 1); at = span[1])
            for (size_t i = span[0]; i < span[1]; i++)
                if (bytes->p[i] == ' ')
                    bytes->p[i] = '\xa0';
    }
    xd_finder_close(f);
}

/* Decodes UTF-8 in which a character beyond U+FFFF may be stored as two surrogates, and NUL as two
 * bytes. */
static int decode(const xd_bytes_buf *bytes, xd_bytes_buf *out)
{
    size_t took;
    out->len = 0;
    for (size_t i = 0; i < bytes->len; i += took) {
        const unsigned char *s = (const unsigned char *)bytes->p + i;
        size_t               left = bytes->len - i;
        int32_t              c = xd_utf8_get((const char *)s, left, &took);
        if (c < 0 && left >= 2 && s[0] == 0xc0 && s[1] == 0x80) {
            c = 0;
            took = 2;
        } else if (c < 0 && left >= 6 && s[0] == 0xed && (s[1] & 0xf0) == 0xa0 &&
                   (s[2] & 0xc0) == 0x80 && s[3] == 0xed && (s[4] & 0xf0) == 0xb0 &&
                   (s[5] & 0xc0) == 0x80) {
            c = 0x10000 + ((s[1] & 15) << 16) + ((s[2] & 63) << 10) + ((s[4] & 15) << 6) +
                (s[5] & 63);
            took = 6;
        }
        if (c < 0)
            return 0;
        xd_utf8_put(c, out);
    }
    return 1;
}

/* ---- partial repairs ------------------------------------------------------------------------ */

enum { FIRST_OF_2 = 1, FIRST_OF_3 = 2, FIRST_OF_4 = 4, NEXT_BYTE = 8, NEXT_ALONE = 16 };

/* Assumes that the character c is a byte of UTF-8 that was decoded as Latin-1 or a Windows
 * character set; returns the roles that this byte can have in UTF-8. A space counts as byte 0xa0,
 * which may have been replaced by a space. A space, dash or quote does not count as a continuation
 * byte if it is the only one of its character. */
static int role_of(int32_t c)
{
    int role = c == ' ' ? NEXT_BYTE : 0;
    for (int set = LATIN1; set <= CP1257; set++) {
        int b = c < 0x80 || c == 0xfffd ? -1 : byte_of(set, c);
        role |= b < 0x80                 ? 0
                : b < 0xc0               ? NEXT_BYTE
                : b < 0xc2               ? 0
                : b < 0xe0               ? FIRST_OF_2
                : b < 0xf0               ? FIRST_OF_3
                : b == 0xf0 || b == 0xf3 ? FIRST_OF_4
                                         : 0;
    }
    int quote = c == ' ' || (c >= 0x2013 && c <= 0x201e) || c == 0x2022 || c == 0x2026;
    return role & NEXT_BYTE && !quote ? role | NEXT_ALONE : role;
}

/* Returns the length of a sequence at the start of s[0..len) that looks like the bytes of one UTF-8
 * character. Returns 0 if there is no such sequence. */
static size_t read_sequence(const char *s, size_t len)
{
    size_t n, took;
    int    role = role_of(xd_utf8_get(s, len, &n));
    for (int more = 1; more <= 3; more++) {
        size_t at = n;
        int    left = role & (more == 1   ? FIRST_OF_2
                              : more == 2 ? FIRST_OF_3
                                          : FIRST_OF_4)
                          ? more
                          : -1;
        for (; left > 0 && at < len; at += took, left--)
            if (!(role_of(xd_utf8_get(s + at, len - at, &took)) & NEXT_BYTE))
                break;
        if (!left)
            return at;
    }
    return 0;
}

static void fix_all(xd_bytes_buf *text, const xd_finder *f);

/* Repairs those parts of a text that look like wrongly decoded UTF-8 and that rarely occur in
 * meaningful text. Returns 1 if the repair changed the text. */
static int fix_stretches(xd_bytes_buf *text, const xd_finder *f)
{
    xd_bytes_buf out = { 0 };
    size_t       took, n, span[2];
    int          behind = 0, changed = 0;
    for (size_t i = 0; i < text->len; i += took) {
        size_t end = i;
        while (!behind && end < text->len &&
               (n = read_sequence(text->p + end, text->len - end)) > 0)
            end += n;
        took = end - i;
        if (took && took < text->len && xd_finder_next(f, text->p + i, took, 0, 0, span, 1)) {
            xd_bytes_buf part = { 0 };
            xd_bytes_add(&part, text->p + i, took);
            if (!part.failed)
                fix_all(&part, f);
            changed |= part.len != took || memcmp(part.p, text->p + i, took) != 0;
            xd_bytes_add(&out, part.p, part.len);
            out.failed |= part.failed;
            xd_bytes_free(&part);
        } else {
            if (!took)
                xd_utf8_get(text->p + i, text->len - i, &took);
            xd_bytes_add(&out, text->p + i, took);
        }
        size_t  from;
        int32_t last = xd_utf8_before(text->p, i + took, &from);
        behind = (role_of(last) & NEXT_ALONE) != 0;
    }
    xd_bytes_free(text);
    *text = out;
    return changed;
}

/* ---- all ------------------------------------------------------------------------------------ */

int xd_fix_controls(xd_bytes_buf *text)
{
    xd_bytes_buf out = { 0 };
    size_t       took;
    int          changed = 0;
    for (size_t i = 0; i < text->len; i += took) {
        int32_t c = xd_utf8_get(text->p + i, text->len - i, &took);
        int32_t meant = c >= 0x80 && c < 0xa0 ? code_of(CP1252, (int)c) : c;
        changed |= meant != c;
        xd_utf8_put(meant, &out);
    }
    xd_bytes_free(text);
    *text = out;
    return changed;
}

/* Encodes a text back to the bytes of a character set, and decodes these bytes as UTF-8. Returns 0
 * if encoding or decoding is not possible. */
static int decode_from(xd_bytes_buf *text, int set, xd_bytes_buf *bytes, xd_bytes_buf *out)
{
    if (!encode(text, set, bytes))
        return 0;
    if (set != MACROMAN)
        restore_blanks(bytes);
    if (is_windows(set))
        xd_replace(bytes, lost_inside, "\xef\xbf\xbd", XD_FIND_BYTES);
    return !bytes->failed && decode(bytes, out);
}

/* Repairs one layer of wrong decoding in a text. Returns 1 if the repair changed the text. */
static int fix_once(xd_bytes_buf *text, const xd_finder *f)
{
    xd_bytes_buf bytes = { 0 }, out = { 0 };
    size_t       span[2];
    int          done = 0;
    if (!xd_finder_next(f, text->p, text->len, 0, 0, span, 1))
        return 0;
    for (int set = 0; set < CHARSETS && !done; set++)
        done = decode_from(text, set, &bytes, &out);
    text->failed |= bytes.failed | out.failed;
    xd_bytes_free(&bytes);
    int changed = done && (out.len != text->len || memcmp(out.p, text->p, out.len) != 0);
    if (done && !text->failed) {
        xd_bytes_free(text);
        *text = out;
        return changed;
    }
    xd_bytes_free(&out);
    if (fix_stretches(text, f))
        return 1;
    return xd_fix_controls(text);
}

static void fix_all(xd_bytes_buf *text, const xd_finder *f)
{
    while (!text->failed && text->len && fix_once(text, f))
        ;
}

void xd_fix_charset(xd_bytes_buf *text)
{
    int high_bytes = 0;
    for (size_t i = 0; i < text->len; i++)
        high_bytes |= text->p[i] & 0x80;
    if (!high_bytes)
        return;
    xd_finder *f = open_unlikely();
    text->failed |= !f;
    if (f)
        fix_all(text, f);
    xd_finder_close(f);
}
