// MPI_Alloc_mem gives memory that collectives work in directly: whatever mixture of memory the ranks pass,
// the results are the same, and what is not heddle's to free goes to the host. With the argument "host" none
// of it may be heddle's.
#include "job.hpp"

namespace {

constexpr std::size_t kCount = 40'000;  // 160 KB: several pieces

void check_allreduce(const std::vector<float*>& buffers, int size, std::uint64_t seed) {
  job::Random random(seed);
  for (int round = 0; round < 60; ++round) {
    const std::size_t count = random.below(kCount) + 1;
    const bool in_place = random.below(3) == 0;
    // Every rank draws its own: some are heddle's memory, some are the host's or the program's.
    job::Random mine(seed * 1000 + static_cast<std::uint64_t>(round * size + job::rank_of(MPI_COMM_WORLD)));
    const std::size_t first = mine.below(buffers.size());
    const std::size_t second = (first + 1 + mine.below(buffers.size() - 1)) % buffers.size();
    float* in = buffers[first];
    float* out = in_place ? in : buffers[second];
    for (std::size_t i = 0; i < count; ++i)
      in[i] = static_cast<float>((i + static_cast<std::size_t>(job::rank_of(MPI_COMM_WORLD))) % 1024);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < size; ++r)
        sum += static_cast<float>((i + static_cast<std::size_t>(r)) % 1024);
      if (out[i] != sum)
        job::fail("round %d: element %zu of %zu is %g, not %g", round, i, count, out[i], sum);
    }
  }
}

template <typename T>
T* allocate(std::size_t count) {
  T* memory = nullptr;
  if (MPI_Alloc_mem(static_cast<MPI_Aint>(count * sizeof(T)), MPI_INFO_NULL, &memory) != MPI_SUCCESS ||
      memory == nullptr)
    job::fail("MPI_Alloc_mem of %zu elements", count);
  return memory;
}

// How many pieces of heddle's memory this process has mapped, its own and others'.
int mapped_pieces() {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) job::fail("no /proc/self/maps");
  int found = 0;
  for (char line[4096]; std::fgets(line, sizeof line, maps) != nullptr;)
    found += std::strstr(line, "memfd:heddle") != nullptr ? 1 : 0;
  std::fclose(maps);
  return found;
}

// Far more than heddle hands out: the rest comes from the host, and each goes back to where it is from.
void allocate_many() {
  std::vector<char*> pieces;
  for (int i = 0; i < 400; ++i) {
    pieces.push_back(allocate<char>(40'000));
    pieces.back()[39'999] = static_cast<char>(i);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i][39'999] != static_cast<char>(i)) job::fail("piece %zu was overwritten", i);
    MPI_Free_mem(pieces[i]);
  }
}

// A loop that asks for memory, uses it and frees it gets the same pages again, not new ones, with the right
// sums.
void allocate_again(int size) {
  for (int i = 1; i <= 50; ++i) {
    float* memory = allocate<float>(kCount);
    // New pages hold zeros, which is what takes the time.
    if (i > 1 && memory[kCount - 1] != static_cast<float>((i - 1) * size))
      job::fail("round %d: new pages", i);
    for (std::size_t k = 0; k < kCount; ++k)
      memory[k] = static_cast<float>(i);
    MPI_Allreduce(MPI_IN_PLACE, memory, static_cast<int>(kCount), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (memory[0] != static_cast<float>(i * size) || memory[kCount - 1] != memory[0])
      job::fail("round %d: %g", i, memory[0]);
    MPI_Free_mem(memory);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int size = job::size_of(MPI_COMM_WORLD);
  const int given =
      argc > 1 && std::strcmp(argv[1], "host") == 0 ? 0 : 1;  // pieces of heddle's per large allocation
  float* early = allocate<float>(kCount);                     // before any communicator is heddle's
  job::warm_up(MPI_COMM_WORLD);
  const int before = mapped_pieces();
  float* late = allocate<float>(kCount);
  if (mapped_pieces() != before + given)
    job::fail("MPI_Alloc_mem gave %d pieces of heddle's memory, not %d", mapped_pieces() - before, given);
  MPI_Info hints;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "mpi_minimum_memory_alignment", "1048576");
  void* aligned = nullptr;
  if (MPI_Alloc_mem(100'000, hints, &aligned) != MPI_SUCCESS || mapped_pieces() != before + given)
    job::fail("MPI_Alloc_mem with hints is not the host's");
  MPI_Free_mem(aligned);
  MPI_Info_free(&hints);
  float* small = allocate<float>(8);
  small[7] = 1;
  std::vector<float> ordinary(kCount);
  check_allreduce({early, late}, size, 1);
  // The results would be the same through slots; this tells whether the others' memory was read in place.
  if (mapped_pieces() != before + given * (1 + 2 * (size - 1)))
    job::fail("%d pieces of memory are mapped here besides the first %d", mapped_pieces() - before, before);
  check_allreduce({early, late, ordinary.data()}, size, 2);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, job::rank_of(MPI_COMM_WORLD) % 2, 0, &half);
  if (job::size_of(half) > 1) job::warm_up(half);
  MPI_Free_mem(early);
  if (given != 0) allocate_again(size);
  allocate_many();
  early = allocate<float>(kCount);
  check_allreduce({late, early}, size, 3);
  MPI_Free_mem(early);
  MPI_Free_mem(late);
  MPI_Free_mem(small);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
