/* peak_amx.c - measures the peak FLOP rate of bf16 tile multiplies (tdpbf16ps) whose operands stay
 * in registers */
#include "backend/cpu/cpu.h"

#include "backend/cpu/amx.h"
#include "base/clock.h"

double xd_burst_amx(void)
{
    enum { ROUNDS = 10000, GEMMS = 4 };
    static const char zeros[16 * 64] __attribute__((aligned(64)));
    xd_tiles_begin();
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    double t = xd_now_s();
    for (int i = 0; i < ROUNDS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    t = xd_now_s() - t;
    xd_tiles_end();
    return 2e-9 * GEMMS * ROUNDS * 16 * 16 * 32 / (t > 1e-9 ? t : 1e-9);
}
