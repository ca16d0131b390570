/* asan.h - what AddressSanitizer is told of the simulated GPU: when a thread of a kernel goes on,
 * on a stack of its own, and which bytes of mapped memory are nobody's
 *
 * Without AddressSanitizer all of this is nothing. */
#ifndef XD_TESTS_SIM_ASAN_H
#define XD_TESTS_SIM_ASAN_H

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#endif
#ifndef SIM_ASAN
#define SIM_ASAN 0
#endif

#if SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* An access to these bytes ends the program; a byte of the last eight that others share stays open
 * where it comes first. */
static inline void sim_close(const volatile void *p, size_t n)
{
#if SIM_ASAN
    __asan_poison_memory_region(p, n);
#else
    (void)p, (void)n;
#endif
}

static inline void sim_open(const volatile void *p, size_t n)
{
#if SIM_ASAN
    __asan_unpoison_memory_region(p, n);
#else
    (void)p, (void)n;
#endif
}

/* How many of n bytes there are. */
static inline size_t sim_present(const void *p, size_t n)
{
#if SIM_ASAN
    const char *bad = (const char *)__asan_region_is_poisoned((void *)(size_t)p, n);
    return bad ? (size_t)(bad - (const char *)p) : n;
#else
    (void)p;
    return n;
#endif
}

/* Before a switch to the stack of n bytes at `bottom`. What is kept of this stack goes to *keep;
 * NULL: this stack is not come back to. */
static inline void sim_before_switch(void **keep, const void *bottom, size_t n)
{
#if SIM_ASAN
    __sanitizer_start_switch_fiber(keep, bottom, n);
#else
    (void)keep, (void)bottom, (void)n;
#endif
}

/* Behind a switch: what was kept of this stack, and where the stack before it lies. */
static inline void sim_after_switch(void *kept, const void **bottom, size_t *n)
{
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(kept, bottom, n);
#else
    (void)kept, (void)bottom, (void)n;
#endif
}

#endif
