// Times MPI's collectives the way `shoal bench comm` times its own: one line of JSON for every collective and
// size, median over a time in which all ranks repeat the call.
//
//   mpicc -O2 -o collectives_mpi bench/collectives_mpi.c
//   mpirun -np 2 collectives_mpi SECONDS COLLECTIVE[,...] BYTES[,...]
//
// Built and run by bench/versus_openmpi.py. BYTES are of the whole, as there.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

struct Buffers {
  float* values;
  float* results;
  int count;
  int* counts;  // of each rank's part
};

// As whoever computed the values would have left them: written by this rank, all ranks ready.
static void prepare(const struct Buffers* b) {
  for (int i = 0; i < b->count; ++i) b->values[i] = 1;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void run(const char* name, const struct Buffers* b, int rank, int ranks) {
  const int part = b->count / ranks;
  if (strcmp(name, "all_reduce") == 0) {
    MPI_Allreduce(MPI_IN_PLACE, b->values, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(name, "all_gather") == 0) {
    MPI_Allgather(b->values + rank * part, part, MPI_FLOAT, b->results, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(name, "all_to_all") == 0) {
    MPI_Alltoall(b->values, part, MPI_FLOAT, b->results, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(name, "reduce_scatter") == 0) {
    MPI_Reduce_scatter(b->values, b->results, b->counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(name, "broadcast") == 0) {
    MPI_Bcast(b->values, b->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (rank == 0) {  // send: there and back
    MPI_Send(b->values, b->count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(b->values, b->count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank == 1) {
    MPI_Recv(b->values, b->count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(b->values, b->count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }
}

static void time_one(const char* name, long bytes, double seconds, int rank, int ranks) {
  struct Buffers b;
  b.count = (int)(bytes / (long)sizeof(float));
  b.values = calloc((size_t)b.count, sizeof(float));
  b.results = calloc((size_t)b.count, sizeof(float));
  b.counts = calloc((size_t)ranks, sizeof(int));
  for (int i = 0; i < ranks; ++i) b.counts[i] = b.count / ranks;
  double begin = MPI_Wtime();
  for (int i = 0; i < 5; ++i) {
    prepare(&b);
    run(name, &b, rank, ranks);
  }
  const double once = (MPI_Wtime() - begin) / 5;
  int rounds = (int)(seconds / (once > 1e-7 ? once : 1e-7));
  rounds = rounds < 10 ? 10 : rounds > 20000 ? 20000 : rounds;
  MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
  double* times = calloc((size_t)rounds, sizeof(double));
  for (int i = 0; i < rounds; ++i) {
    prepare(&b);
    begin = MPI_Wtime();
    run(name, &b, rank, ranks);
    times[i] = MPI_Wtime() - begin;
  }
  qsort(times, (size_t)rounds, sizeof(double), compare);
  if (rank == 0) {
    const double one_way = strcmp(name, "send") == 0 ? 0.5 : 1;
    printf("{\"collective\": \"%s\", \"bytes\": %ld, \"us\": %.3f, \"p99_us\": %.3f}\n", name, bytes,
           times[(rounds - 1) / 2] * 1e6 * one_way, times[(int)((rounds - 1) * 0.99)] * 1e6 * one_way);
    fflush(stdout);
  }
  free(times);
  free(b.counts);
  free(b.results);
  free(b.values);
}

int main(int argc, char** argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4) {
    if (rank == 0) fprintf(stderr, "usage: collectives_mpi SECONDS COLLECTIVE[,...] BYTES[,...]\n");
    MPI_Finalize();
    return 2;
  }
  char* names_end = NULL;
  for (char* name = strtok_r(argv[2], ",", &names_end); name; name = strtok_r(NULL, ",", &names_end)) {
    char* sizes = strdup(argv[3]);
    char* sizes_end = NULL;
    for (char* size = strtok_r(sizes, ",", &sizes_end); size; size = strtok_r(NULL, ",", &sizes_end))
      time_one(name, atol(size), atof(argv[1]), rank, ranks);
    free(sizes);
  }
  MPI_Finalize();
  return 0;
}
