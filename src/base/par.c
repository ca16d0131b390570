/* par.c - implements the thread pool of CPU kernels.
 *
 * The pool does not use OpenMP's threads, for three reasons. First, the duration for which a thread
 * spins before it sleeps can be changed while the program runs, whereas libgomp reads this setting
 * only once, before main. Second, if a busy machine does not schedule a worker in time, the caller
 * does that worker's piece of the work. Third, several threads of a process can make parallel calls
 * without a thread team for each.
 *
 * A round is one parallel call, whose work is divided into pieces, one per thread. The word `state`
 * holds the round's number and its count of pieces. Worker i owns piece i, and the caller owns
 * piece 0. A thread claims a piece by writing the round's number to the piece's element of `taken`.
 * A worker that slept through a round finds that its piece has been claimed. Only a thread that has
 * claimed a piece reads the struct `job`, which does not change until all pieces are done. */
#define _GNU_SOURCE /* for sched_getaffinity, syscall */
#include "base/par.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/signals.h"

/* MAX_THREADS: max number of threads of a process. SPINS: iterations of a waiting loop before a
 * thread sleeps (about 20 us). SHORT_SPINS: the number of iterations after which a thread sleeps if
 * it should sleep almost at once. PIECES: bits of `state` for the number of pieces. */
enum { MAX_THREADS = 4096, SPINS = 1000, SHORT_SPINS = 10, PIECES = 16 };

static int threads;

static struct {
    void      (*fn)(void *arg);
    void     *arg;
    pthread_t owner;
    double    last_s; /* time at which this thread's last call of `fn` returned */
} hook;

typedef struct job {
    void              (*fn)(void *ctx, int64_t begin, int64_t end, int thread);
    void             *ctx;
    int64_t           n;
    int               pieces, dynamic;
    const xd_par_omp *team; /* OpenMP team of the round; NULL: the pool's threads */
    _Atomic int64_t   next; /* next loop index of a round with dynamic scheduling */
} job;

static struct {
    pthread_mutex_t  caller; /* locked by the caller of a round */
    _Atomic uint64_t state;  /* round's number << PIECES | round's number of pieces */
    /* [i]: number of the last round in which a thread claimed piece i */
    _Atomic uint64_t taken[MAX_THREADS];
    atomic_int       wakeup; /* counter that changes when a round begins */
    atomic_int       left;   /* number of pieces of the round that are not done */
    /* asleep: number of workers that sleep on `wakeup`; waiting: 1 while the caller sleeps on
     * `left` */
    atomic_int       asleep, waiting;
    job              job;
    /* Number of iterations that a waiting thread spins before it sleeps; may be changed at any
     * time. */
    atomic_int       spins;
    /* workers: number of started workers; handles_fork: 1: the fork handler is registered */
    int              workers, handles_fork;
} pool = { .caller = PTHREAD_MUTEX_INITIALIZER, .spins = SPINS };

static const xd_par_omp *_Atomic team; /* the OpenMP team for new rounds, or NULL */
static _Thread_local int inside;       /* 1 while the thread does a piece */

/* Counts the cores on which the process may run. Tries CPU masks of growing size, because hosts
 * with more than 1024 cores need a longer mask than cpu_set_t. */
int xd_par_cores(void)
{
    for (int max = 1024; max <= 1 << 18; max *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)max);
        size_t     size = CPU_ALLOC_SIZE((size_t)max);
        int        n = 0;
        if (set && sched_getaffinity(0, size, set) == 0)
            n = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int xd_par_set(int n)
{
    int         cores = xd_par_cores();
    const char *wait = getenv("OMP_WAIT_POLICY");
    int         sleepy = wait && strcasecmp(wait, "passive") == 0;
    threads = n < 1 ? cores : n < MAX_THREADS ? n : MAX_THREADS;
    pool.spins = threads > cores || sleepy ? SHORT_SPINS : SPINS;
    return threads;
}

int xd_par_threads(void)
{
    return threads ? threads : xd_par_set(0);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_on(atomic_int *word, int seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake_all(atomic_int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the pool's state word differs from `seen`, and returns the new state. */
static uint64_t next_state(uint64_t seen)
{
    uint64_t s;
    for (int i = 0; i < pool.spins; i++) {
        if ((s = atomic_load_explicit(&pool.state, memory_order_acquire)) != seen)
            return s;
        pause_cpu();
    }
    atomic_fetch_add(&pool.asleep, 1);
    for (;;) {
        int seen_bell = atomic_load(&pool.wakeup);
        if ((s = atomic_load(&pool.state)) != seen)
            break;
        sleep_on(&pool.wakeup, seen_bell);
    }
    atomic_fetch_sub(&pool.asleep, 1);
    return s;
}

static void piece_done(void)
{
    if (atomic_fetch_sub(&pool.left, 1) == 1 && atomic_load(&pool.waiting))
        wake_all(&pool.left);
}

static void wait_for_all(void)
{
    int n;
    for (int i = 0; i < pool.spins; i++) {
        if (atomic_load_explicit(&pool.left, memory_order_acquire) == 0)
            return;
        pause_cpu();
    }
    atomic_store(&pool.waiting, 1);
    while ((n = atomic_load(&pool.left)) > 0)
        sleep_on(&pool.left, n);
    atomic_store(&pool.waiting, 0);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static int claim_piece(int i, uint64_t round)
{
    uint64_t last = atomic_load(&pool.taken[i]);
    return last < round && atomic_compare_exchange_strong(&pool.taken[i], &last, round);
}

static void run_piece(int i)
{
    job    *j = &pool.job;
    int64_t k = j->pieces;
    inside = 1;
    if (j->dynamic)
        for (int64_t at;
             (at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->n;) {
            j->fn(j->ctx, at, at + 1, i);
            xd_par_poke();
        }
    else if (j->n * i / k < j->n * (i + 1) / k)
        j->fn(j->ctx, j->n * i / k, j->n * (i + 1) / k, i);
    inside = 0;
    piece_done();
}

static void *run_worker(void *arg)
{
    int      me = (int)(intptr_t)arg;
    uint64_t seen = 0;
    for (;;) {
        seen = next_state(seen);
        if (me < (int)(seen & ((1 << PIECES) - 1)) && claim_piece(me, seen >> PIECES))
            run_piece(me);
    }
    return NULL;
}

/* Resets the pool in the child process of a fork: only the thread that called fork exists there. */
static void reset_after_fork(void)
{
    pool.workers = 0;
    atomic_store(&pool.asleep, 0);
    pthread_mutex_init(&pool.caller, NULL);
}

/* Starts workers until the pool has n - 1. If a worker cannot be started, the calling thread does
 * that worker's piece. Workers block the signals that the calling thread should handle. */
static void start_workers(int n)
{
    sigset_t  all, old;
    pthread_t id;
    if (pool.workers >= n - 1)
        return;
    if (!pool.handles_fork)
        pool.handles_fork = pthread_atfork(NULL, NULL, reset_after_fork) == 0;
    xd_signals_for_caller(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pool.workers < n - 1 &&
           pthread_create(&id, NULL, run_worker, (void *)(intptr_t)(pool.workers + 1)) == 0) {
        pthread_detach(id);
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Runs on each thread of an OpenMP team: computes the thread's own piece of the round, then pieces
 * that no thread has claimed. OpenMP orders this function after the caller's earlier writes and
 * before the caller's later reads. The atomic operations guarantee the same order once more, for
 * analysis tools that do not know OpenMP's barriers. */
static void join_round(void *data)
{
    (void)atomic_load(&pool.state);
    uint64_t round = *(const uint64_t *)data;
    int      pieces = pool.job.pieces, me = pool.job.team->number();
    for (int k = 0; k < pieces; k++)
        if (claim_piece((me + k) % pieces, round))
            run_piece((me + k) % pieces);
    atomic_fetch_add(&pool.left, 0);
}

static void run_round(int pieces)
{
    uint64_t round = (atomic_load_explicit(&pool.state, memory_order_relaxed) >> PIECES) + 1;
    atomic_store_explicit(&pool.left, pieces, memory_order_relaxed);
    if (pool.job.team) {
        atomic_store(&pool.state, round << PIECES); /* the pool's workers get no piece */
        pool.job.team->parallel(join_round, &round, (unsigned)pieces, 0);
        (void)atomic_load(&pool.left);
        return;
    }
    atomic_store(&pool.state, round << PIECES | (uint64_t)pieces);
    atomic_fetch_add(&pool.wakeup, 1);
    if (atomic_load(&pool.asleep) > 0)
        wake_all(&pool.wakeup);
    run_piece(0);
    for (int i = pieces - 1; i > 0; i--)
        if (claim_piece(i, round))
            run_piece(i);
    wait_for_all();
}

static void run_alone(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                      void *ctx, int dynamic)
{
    for (int64_t i = 0; dynamic && i < n; i++) {
        fn(ctx, i, i + 1, 0);
        xd_par_poke();
    }
    if (!dynamic)
        fn(ctx, 0, n, 0);
}

/* Runs a round of fn over n items. A nested call, or a call while another thread's round runs, does
 * all the work on the calling thread. */
static void run_parallel(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                         void *ctx, int dynamic)
{
    int t = (int)(xd_par_threads() < n ? xd_par_threads() : n);
    if (n <= 0)
        return;
    if (t == 1 || inside || pthread_mutex_trylock(&pool.caller) != 0) {
        run_alone(n, fn, ctx, dynamic);
        return;
    }
    if (!(pool.job.team = atomic_load(&team)))
        start_workers(t);
    pool.job.fn = fn;
    pool.job.ctx = ctx;
    pool.job.n = n;
    pool.job.pieces = t;
    pool.job.dynamic = dynamic;
    atomic_store_explicit(&pool.job.next, 0, memory_order_relaxed);
    run_round(t);
    pthread_mutex_unlock(&pool.caller);
}

void xd_par_for(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx)
{
    run_parallel(n, fn, ctx, 0);
}

void xd_par_dynamic(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                    void *ctx)
{
    run_parallel(n, fn, ctx, 1);
}

void xd_par_team(const xd_par_omp *omp)
{
    atomic_store(&team, omp && omp->parallel ? omp : NULL);
}

void xd_par_hook(void (*fn)(void *arg), void *arg)
{
    hook.fn = fn;
    hook.arg = arg;
    hook.owner = pthread_self();
    hook.last_s = 0;
}

void xd_par_poke(void)
{
    if (!hook.fn || !pthread_equal(hook.owner, pthread_self()) || xd_now_s() - hook.last_s < 50e-6)
        return;
    hook.fn(hook.arg);
    hook.last_s = xd_now_s();
}
