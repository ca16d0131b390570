/* test_lent.c - engines on communicators that a program lends; lent.sh compares what they generate
 *
 * usage: test_lent MODEL DIR split    4 ranks: two groups generate two images at a time, twice
 *        test_lent MODEL DIR world SEED    the same by an engine that starts MPI itself
 *        test_lent MODEL DIR early    MPI is lent before it is initialised
 * Exit code 0: all is well. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xdit/xdit.h"

static int me, failed;

static void expect(int ok, const char *what)
{
    if (!ok)
        fprintf(stderr, "rank %d: %s\n", me, what);
    failed |= !ok;
}

static xd_open_args arguments(const char *model, const void *comm)
{
    xd_open_args a;
    xd_open_args_init(&a);
    a.model = model;
    a.dtype = "f32";
    a.threads = 1;
    a.parallel.ulysses_degree = 2;
    a.mpi_comm = comm;
    return a;
}

/* Generates the image of a seed and saves it on rank 0 of the engine, as DIR/NAME_SEED.ppm. */
static void generate(xd_engine *g, const char *dir, const char *name, int seed)
{
    static const char *const prompt = "a large red circle on a blue background";
    char                     path[1024];
    xd_err                   e = { 0 };
    xd_result               *out = NULL;
    xd_request               r;
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1;
    r.num_inference_steps = 3;
    r.seed = seed;
    snprintf(path, sizeof path, "%s/%s_%d.ppm", dir, name, seed);
    xd_status s = xd_generate(g, &r, &out, &e);
    if (s == XD_OK && xd_rank(g) == 0)
        s = xd_result_save(out, 0, path, &e);
    expect(s == XD_OK, e.msg);
    xd_result_free(&out);
}

static void open_and_generate(const char *model, const void *comm, const char *dir,
                              const char *name, int seed)
{
    xd_open_args a = arguments(model, comm);
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    expect(xd_open(&g, &a, &e) == XD_OK, e.msg);
    if (!g)
        return;
    generate(g, dir, name, seed);
    generate(g, dir, name, seed + 100);
    xd_close(&g);
}

/* A receive of the program that takes any message of its communicator gets the program's. */
static void with_a_receive(const char *model, MPI_Comm half, const char *dir, int seed)
{
    int         rank, size, got = -1, sent = 40 + seed;
    MPI_Request r;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, half, &r);
    open_and_generate(model, &half, dir, "split", seed);
    expect(got == -1, "the library sends messages on the program's communicator");
    MPI_Barrier(half); /* the other rank sends when this one has looked */
    MPI_Send(&sent, 1, MPI_INT, (rank + 1) % size, 3, half);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    expect(got == sent, "a message of the program is lost");
}

static void refused(const char *model, MPI_Comm comm, const char *words)
{
    xd_open_args a = arguments(model, &comm);
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    expect(xd_open(&g, &a, &e) == XD_EINVAL && !g && strstr(e.msg, words), e.msg);
}

static void refusals(const char *model, MPI_Comm half, int other)
{
    MPI_Comm both;
    refused(model, MPI_COMM_NULL, "MPI_COMM_NULL");
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other, 7, &both);
    refused(model, both, "an intercommunicator");
    MPI_Comm_free(&both);
}

/* Two engines of one process: one with the half, one alone. */
static void two_at_a_time(const char *model, MPI_Comm half, const char *dir, int seed)
{
    MPI_Comm     self = MPI_COMM_SELF;
    xd_open_args a = arguments(model, &half), b = arguments(model, &self);
    xd_err       e = { 0 };
    xd_engine   *g = NULL, *h = NULL;
    b.parallel.ulysses_degree = 1;
    expect(xd_open(&g, &a, &e) == XD_OK && xd_open(&h, &b, &e) == XD_OK, e.msg);
    if (g && h) {
        expect(xd_ranks(g) == 2 && xd_ranks(h) == 1, "wrong numbers of ranks");
        generate(g, dir, "split", seed);
        generate(h, dir, me ? "self" : "alone", 70 + me);
    }
    xd_close(&g);
    xd_close(&h);
}

static void split(const char *model, const char *dir)
{
    MPI_Comm       half, pairs;
    MPI_Errhandler before, after;
    int            on = 0, off = 1, one = 1, sum = 0;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_split(MPI_COMM_WORLD, me / 2, me, &half);
    MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &pairs);
    refusals(model, half, me < 2 ? 2 : 0);
    with_a_receive(model, half, dir, 1 + me / 2);
    two_at_a_time(model, pairs, dir, 3 + me % 2);
    MPI_Initialized(&on);
    MPI_Finalized(&off);
    expect(on && !off, "the library has ended MPI");
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    expect(before == after, "the library has changed an error handler of the program");
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == 4, "the ranks of the program do not meet any more");
    MPI_Comm_free(&half);
    MPI_Comm_free(&pairs);
}

int main(int argc, char **argv)
{
    MPI_Comm none = MPI_COMM_NULL;
    int      on = 0;
    if (argc < 4)
        return 2;
    if (strcmp(argv[3], "early") == 0) {
        refused(argv[1], none, "has not initialised MPI");
        MPI_Initialized(&on);
        expect(!on, "the library has started MPI");
        return failed;
    }
    if (strcmp(argv[3], "world") == 0) {
        int seed = argc > 4 ? atoi(argv[4]) : 0;
        open_and_generate(argv[1], NULL, argv[2], "world", seed);
        return failed;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    split(argv[1], argv[2]);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
