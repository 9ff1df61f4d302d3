/* MPI_Allreduce, MPI_Reduce, MPI_Bcast or MPI_Allgather of floats in a loop, for a look beside an MPI that
 * heddle_allreduce was not built with:
 *
 *     mpicc.openmpi -O2 osu_style_bench/peer_loop.c -o loop.openmpi
 *     mpicc.mpich   -O2 osu_style_bench/peer_loop.c -o loop.mpich
 *     mpiexec.openmpi --bind-to core -n 2 ./loop.openmpi allreduce 4 16777216
 *     L=dist/lib/libheddle_preload.so
 *     mpiexec.mpich -bind-to core -n 2 -genv LD_PRELOAD $L ./loop.mpich allreduce 4 16777216
 *
 * Arguments: the collective, the least and the largest size in bytes, in an allgather of what each rank
 * gives. The root of a bcast or reduce is another rank each time, or some would run ahead. Prints, for each
 * power of two between them, the size and the median over 41 blocks of 4 ms (9, where a call takes 50 ms) of
 * the microseconds of one call on rank 0. Bcasts in a row overlap each other between nodes: "bcast_alone"
 * times each by itself, after all have met, until the slowest rank has it, and prints the median of 41 to
 * 2000 in about a second. Those of "bcast_fixed", in a row as well, all come from rank 0, which does run
 * ahead: their block takes what it takes the slowest rank. Buffers are fresh as in heddle_allreduce: 63 of
 * each kind in turn, or as many (odd) as 128 MiB hold of the longer kind. After the last block of a size one
 * more call is checked, by when the library that serves it is the one that was timed; where its result is
 * wrong no time is printed, and the status is 1. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kBlocks = 41,
  kFewBlocks = 9,
  kMostAlone = 2000,
  kMostBuffers = 63,
  kLine = 64,
  kPage = 4096,
  kPeriod = 11
};

static const double kSlow = 50e-3;

typedef enum { kAllreduce, kReduce, kBcast, kAllgather } Collective;

typedef struct {
  Collective collective;
  char* in;
  char* out;
  size_t stride;     /* of what is sent */
  size_t out_stride; /* of what comes of it, which is longer in an allgather */
  size_t buffers;
  size_t next;
  int count;
  int root;  /* of the next bcast or reduce */
  int moves; /* the root */
  int ranks;
} Pool;

/* Buffers that share no line. */
static size_t stride_of(size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine + kLine;
}

static char* pages(size_t bytes, int value) {
  const size_t all = (bytes + kPage - 1) / kPage * kPage;
  char* memory = aligned_alloc(kPage, all);
  if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(memory, value, all);
  return memory;
}

static Pool make_pool(size_t bytes, Collective collective, int moves) {
  Pool p = {0};
  p.collective = collective;
  MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
  p.stride = stride_of(bytes);
  p.out_stride = stride_of(collective == kAllgather ? bytes * (size_t)p.ranks : bytes);
  p.buffers = ((size_t)128 << 20) / p.out_stride;
  if (p.buffers > kMostBuffers) p.buffers = kMostBuffers;
  if (p.buffers < 2) p.buffers = 2;
  /* Odd, or each of two roots would have half of them. */
  if (p.buffers > 2 && p.buffers % 2 == 0) --p.buffers;
  p.count = (int)(bytes / sizeof(float));
  p.moves = moves;
  p.in = pages(p.buffers * p.stride, 0x3c); /* 0.0115 each: zeros may go by a way of their own */
  p.out = pages(p.buffers * p.out_stride, 0);
  return p;
}

/* All have an `out`, though only the root's gets something: gloo wants it. */
static void call(const Pool* p, const void* in, void* out) {
  switch (p->collective) {
    case kAllreduce:
      MPI_Allreduce(in, out, p->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case kReduce:
      MPI_Reduce(in, out, p->count, MPI_FLOAT, MPI_SUM, p->root, MPI_COMM_WORLD);
      break;
    case kBcast:
      MPI_Bcast(out, p->count, MPI_FLOAT, p->root, MPI_COMM_WORLD);
      break;
    case kAllgather:
      MPI_Allgather(in, p->count, MPI_FLOAT, out, p->count, MPI_FLOAT, MPI_COMM_WORLD);
      break;
  }
}

/* Seconds of one of `calls` calls, or a few more: the root of a reduce waits, and others may not, so each
 * rank is it as often. */
static double block(Pool* p, long calls) {
  if (p->collective == kReduce) calls = (calls + p->ranks - 1) / p->ranks * p->ranks;
  const double start = MPI_Wtime();
  for (long i = 0; i < calls; ++i) {
    call(p, p->in + p->next * p->stride, p->out + p->next * p->out_stride);
    if (p->moves) p->root = p->root + 1 == p->ranks ? 0 : p->root + 1;
    p->next = p->next + 1 == p->buffers ? 0 : p->next + 1;
  }
  return (MPI_Wtime() - start) / (double)calls;
}

/* What `rank` has at `index`. Ranks and places are told apart, sums are exact, and no rank is missing from
 * one unseen. In an allgather no two ranks have a number in common. */
static float number(const Pool* p, int index, int rank) {
  const long place = (index * 7L + rank * 3) % kPeriod + 1;
  return (float)(p->collective == kAllgather ? (long)rank * kPeriod + place : place);
}

/* How many elements a result has. */
static int results(const Pool* p) {
  return p->collective == kAllgather ? p->count * p->ranks : p->count;
}

/* How many of a result are not what they must be. */
static int wrong_results(const Pool* p, const float* out) {
  const int bcast = p->collective == kBcast;
  float sums[kPeriod] = {0};
  for (int i = 0; i < kPeriod; ++i)
    for (int r = bcast ? p->root : 0; r < (bcast ? p->root + 1 : p->ranks); ++r)
      sums[i] += number(p, i, r);
  int wrong = 0;
  for (int i = 0; i < results(p); ++i)
    wrong +=
        out[i] != (p->collective == kAllgather ? number(p, i % p->count, i / p->count) : sums[i % kPeriod]);
  return wrong;
}

/* One more call of the kind that was measured: whoever is measured gives what MPI must. All ranks get the
 * same answer. What the buffers hold is lost. */
static int right(Pool* p, int rank) {
  float* in = (float*)(p->in + p->next * p->stride);
  float* out = (float*)(p->out + p->next * p->out_stride);
  for (int i = 0; i < p->count; ++i)
    in[i] = number(p, i, rank);
  for (int i = 0; i < results(p); ++i)
    out[i] = p->collective == kBcast && rank == p->root ? in[i] : -1;
  call(p, in, out);
  const int looks = p->collective != kReduce || rank == p->root;
  const int wrong = looks ? wrong_results(p, out) : 0;
  if (wrong != 0) fprintf(stderr, "rank %d: %d of %d results are wrong\n", rank, wrong, results(p));
  const double mine = wrong;
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most == 0;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median_us(Pool* p) {
  double samples[kBlocks];
  block(p, 6);
  double each = block(p, 2);
  MPI_Bcast(&each, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  const int blocks = each > kSlow ? kFewBlocks : kBlocks;
  if (blocks == kBlocks) {
    block(p, 40);
    each = block(p, 20);
    MPI_Bcast(&each, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  long calls = (long)(4e-3 / each);
  if (calls < 1) calls = 1;
  if (calls > 100000) calls = 100000;
  for (int i = 0; i < blocks; ++i) {
    double mine = block(p, calls);
    samples[i] = mine * 1e6;
    if (p->moves) continue;
    /* All meet in it as well. */
    MPI_Allreduce(&mine, &samples[i], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    samples[i] *= 1e6;
  }
  qsort(samples, (size_t)blocks, sizeof(double), compare);
  return samples[blocks / 2];
}

/* As median_us(), of bcasts by themselves. Clocks of several nodes differ, so each rank times itself from the
 * meeting on. */
static double median_alone_us(Pool* p) {
  static double samples[kMostAlone];
  double slowest = 0;
  double total = 0;
  int n = 0;
  for (int i = -10; n < kBlocks || (n < kMostAlone && total < 1); ++i) {
    double mine = block(p, 1);
    /* The barrier as well. */
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i < 0) continue;
    samples[n++] = slowest * 1e6;
    total += slowest;
  }
  qsort(samples, (size_t)n, sizeof(double), compare);
  return samples[n / 2];
}

/* False where `name` is none. */
static int collective_of(const char* name, Collective* collective) {
  static const char* const names[] = {"allreduce", "reduce", "bcast", "allgather"};
  for (int i = 0; i < 4; ++i) {
    if (strcmp(name, names[i]) != 0) continue;
    *collective = (Collective)i;
    return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int alone = argc == 4 && strcmp(argv[1], "bcast_alone") == 0;
  const int fixed = argc == 4 && strcmp(argv[1], "bcast_fixed") == 0;
  Collective collective = kBcast;
  if (argc != 4 || (!alone && !fixed && !collective_of(argv[1], &collective))) {
    if (rank == 0)
      fprintf(stderr,
              "usage: %s allreduce|reduce|bcast|bcast_alone|bcast_fixed|allgather MIN MAX   (bytes)\n",
              argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  /* heddle takes MPI_COMM_WORLD over at the third of these; reduces and allgathers alone would have to be
   * many. */
  for (int i = 0; i < 4; ++i) {
    float mine = 1;
    float sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  const size_t most = strtoul(argv[3], NULL, 10);
  int good = 1;
  for (size_t bytes = strtoul(argv[2], NULL, 10); good && bytes >= sizeof(float) && bytes <= most;
       bytes *= 2) {
    Pool pool = make_pool(bytes, collective, !fixed);
    const double us = alone ? median_alone_us(&pool) : median_us(&pool);
    good = right(&pool, rank);
    if (good && rank == 0) printf("%zu %.3f\n", bytes, us);
    free(pool.in);
    free(pool.out);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
