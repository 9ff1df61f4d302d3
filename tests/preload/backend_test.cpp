// Parts of a backend, in one process with a host MPI of its ABI: which pairs of datatype and operation are
// served, how communicators are found.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host.hpp"
#include "interpose/backend/backend.hpp"
#include "interpose/backend/comm_state.hpp"
#include "interpose/backend/datatype_map.hpp"
#include "interpose/backend/finalize_together.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/host_self.hpp"

namespace heddle::backend {
namespace {

using test::host;
using test::symbols;

TEST(HostMpi, NamesTheFunctionThatIsMissing) {
  HeddleHostSymbols lacking = symbols();
  lacking.find = [](void* handle, const char* name) -> void* {
    return std::strcmp(name, "PMPI_Ialltoallv") == 0 ? nullptr : dlsym(handle, name);
  };
  const auto loaded = load_host_mpi(lacking);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().message(), "the host has no function PMPI_Ialltoallv");
}

bool memory_is_short = true;
int communicators_freed = 0;

// The first call finds no memory where a backend is made ready; the next one does.
TEST(Backend, OutlivesWantOfMemoryAtTheBeginning) {
  HostMpi mpi = host();
  mpi.Pack_size = [](int count, MPI_Datatype type, MPI_Comm comm, int* size) {
    if (memory_is_short) throw std::bad_alloc();
    return PMPI_Pack_size(count, type, comm, size);
  };
  mpi.Comm_free = [](MPI_Comm* comm) {
    ++communicators_freed;
    return PMPI_Comm_free(comm);
  };
  // Not all zeros, so that it shows where something is used that was never made. For good: MPI_Finalize calls
  // it.
  alignas(Backend) static unsigned char place[sizeof(Backend)];
  std::memset(place, 0x7f, sizeof place);
  auto* const backend = new (place) Backend(mpi);
  const int in = 7;
  int out = 0;
  testing::internal::CaptureStderr();
  EXPECT_EQ(backend->allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF), MPI_ERR_NO_MEM);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // nobody knows yet what is wanted there
  EXPECT_EQ(communicators_freed, 1);
  EXPECT_FALSE(backend->is_ready());
  memory_is_short = false;
  EXPECT_EQ(backend->allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF), MPI_SUCCESS);
  EXPECT_EQ(out, in);
  EXPECT_TRUE(backend->is_ready());
}

std::string version_text(const std::string& version, const std::string& device, const std::string& options) {
  return "MPICH Version:      " + version + "\nMPICH Release date: some day\nMPICH ABI:          14:2:2\n" +
         "MPICH Device:       " + device + "\nMPICH configure:    --prefix=/usr " + options +
         "\nMPICH CC: gcc\n";
}

TEST(FinalizeTogether, KnowsTheHostsThatNeedIt) {
  EXPECT_TRUE(may_hang_in_finalize(version_text("4.0.2", "ch4:ucx", "--with-pm=hydra")));
  EXPECT_TRUE(may_hang_in_finalize(version_text("3.4.3", "ch4:ucx", "")));
  EXPECT_TRUE(may_hang_in_finalize(version_text("4.1rc1", "ch4:ucx", "--with-pmi=simple")));
  EXPECT_FALSE(may_hang_in_finalize(version_text("4.2.0", "ch4:ucx", "")));
  EXPECT_FALSE(may_hang_in_finalize(version_text("5.0.1", "ch4:ucx", "")));
  EXPECT_FALSE(may_hang_in_finalize(version_text("4.0.2", "ch4:ofi", "--with-ucx=/usr")));
  EXPECT_FALSE(may_hang_in_finalize(version_text("4.0.2", "ch4:ucx", "--with-pmi=pmi2")));
  EXPECT_FALSE(may_hang_in_finalize(version_text("4.0.2", "ch4:ucx", "--with-pmilib=slurm")));
  EXPECT_FALSE(may_hang_in_finalize("Intel(R) MPI Library 2021.8 for Linux* OS"));
  EXPECT_FALSE(may_hang_in_finalize("MPICH Version: x"));
  EXPECT_FALSE(may_hang_in_finalize("MPICH Version:"));
  EXPECT_FALSE(may_hang_in_finalize(""));
}

// The barrier against a process manager that answers `answer` and closes.
Status barrier_answered_by(const std::string& answer, std::string* asked) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::thread manager([&, end = ends[1]] {
    char line[64] = "";
    const ssize_t got = read(end, line, sizeof line);
    if (got > 0) asked->assign(line, static_cast<std::size_t>(got));
    EXPECT_EQ(write(end, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
    shutdown(end, SHUT_WR);
  });
  const Status met = process_manager_barrier(ends[0]);
  manager.join();
  char next[64] = "";
  if (met.ok()) {
    EXPECT_GT(read(ends[0], next, sizeof next), 0) << "it took more than its line";
  }
  close(ends[0]);
  close(ends[1]);
  return met;
}

TEST(FinalizeTogether, MeetsThroughTheProcessManager) {
  std::string asked;
  EXPECT_TRUE(barrier_answered_by("cmd=barrier_out\ncmd=next\n", &asked).ok());
  EXPECT_EQ(asked, "cmd=barrier_in\n");
  EXPECT_EQ(barrier_answered_by("cmd=abort\n", &asked).code(), Code::system);
  EXPECT_EQ(barrier_answered_by("cmd=barr", &asked).code(), Code::peer_failed);
  EXPECT_EQ(barrier_answered_by(std::string(5000, 'x'), &asked).code(), Code::system);
  EXPECT_EQ(process_manager_barrier(-1).code(), Code::system);
}

// The classes of types in section "Predefined Reduction Operations" of the MPI standard.
enum class Class { c_signed, c_unsigned, fortran_integer, real, complex, logical, byte, address, none };

struct Predefined {
  const char* name;
  MPI_Datatype type;
  Class type_class;
};
#define T(name, kind) \
  { #name, name, Class::kind }
const Predefined kPredefined[] = {
    T(MPI_SIGNED_CHAR, c_signed), T(MPI_UNSIGNED_CHAR, c_unsigned), T(MPI_SHORT, c_signed),
    T(MPI_UNSIGNED_SHORT, c_unsigned), T(MPI_INT, c_signed), T(MPI_UNSIGNED, c_unsigned),
    T(MPI_LONG, c_signed), T(MPI_UNSIGNED_LONG, c_unsigned), T(MPI_LONG_LONG_INT, c_signed),
    T(MPI_UNSIGNED_LONG_LONG, c_unsigned), T(MPI_INT8_T, c_signed), T(MPI_INT16_T, c_signed),
    T(MPI_INT32_T, c_signed), T(MPI_INT64_T, c_signed), T(MPI_UINT8_T, c_unsigned),
    T(MPI_UINT16_T, c_unsigned), T(MPI_UINT32_T, c_unsigned), T(MPI_UINT64_T, c_unsigned),
    T(MPI_INTEGER, fortran_integer), T(MPI_INTEGER1, fortran_integer), T(MPI_INTEGER2, fortran_integer),
    T(MPI_INTEGER4, fortran_integer), T(MPI_INTEGER8, fortran_integer), T(MPI_AINT, address),
    T(MPI_OFFSET, address), T(MPI_COUNT, address), T(MPI_FLOAT, real), T(MPI_DOUBLE, real),
    T(MPI_LONG_DOUBLE, real), T(MPI_REAL, real), T(MPI_DOUBLE_PRECISION, real), T(MPI_REAL4, real),
    T(MPI_REAL8, real), T(MPI_COMPLEX, complex), T(MPI_DOUBLE_COMPLEX, complex), T(MPI_COMPLEX8, complex),
    T(MPI_COMPLEX16, complex), T(MPI_C_FLOAT_COMPLEX, complex), T(MPI_C_DOUBLE_COMPLEX, complex),
    T(MPI_C_LONG_DOUBLE_COMPLEX, complex), T(MPI_CXX_FLOAT_COMPLEX, complex),
    T(MPI_CXX_DOUBLE_COMPLEX, complex), T(MPI_CXX_LONG_DOUBLE_COMPLEX, complex), T(MPI_LOGICAL, logical),
    T(MPI_C_BOOL, logical), T(MPI_CXX_BOOL, logical), T(MPI_BYTE, byte),
    // Not served: characters, pairs, packed, and formats that depend on how the host was built.
    T(MPI_CHAR, none), T(MPI_CHARACTER, none), T(MPI_WCHAR, none), T(MPI_PACKED, none), T(MPI_2INT, none),
    T(MPI_FLOAT_INT, none), T(MPI_DOUBLE_INT, none), T(MPI_LONG_DOUBLE_INT, none), T(MPI_2REAL, none),
    T(MPI_2INTEGER, none), T(MPI_2DOUBLE_PRECISION, none), T(MPI_REAL16, none), T(MPI_COMPLEX32, none),
#ifdef MPI_ABI
    T(MPI_LOGICAL1, none), T(MPI_LOGICAL16, none), T(MPI_INTEGER16, none), T(MPI_REAL2, none),
    T(MPI_COMPLEX4, none),
#else
    T(MPI_LB, none), T(MPI_UB, none),
#endif
    T(MPI_DATATYPE_NULL, none)};
#undef T

bool in_standard(Class c, MPI_Op op) {
  const bool integer =
      c == Class::c_signed || c == Class::c_unsigned || c == Class::fortran_integer || c == Class::address;
  if (op == MPI_MAX || op == MPI_MIN) return integer || c == Class::real;
  if (op == MPI_SUM || op == MPI_PROD) return integer || c == Class::real || c == Class::complex;
  if (op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR) return integer || c == Class::logical;
  if (op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR) return integer || c == Class::byte;
  return false;
}

// Debian's MPICH 4.0.2 compares unsigned integers as signed ones.
bool host_compares_wrongly(const Predefined& p) {
  if (p.type_class != Class::c_unsigned) return false;
  int size = 0;
  PMPI_Type_size(p.type, &size);
  std::uint64_t large = ~std::uint64_t{0} - 55;
  std::uint64_t small = 100;
  PMPI_Reduce_local(&large, &small, 1, p.type, MPI_MIN);
  return std::memcmp(&small, &large, static_cast<std::size_t>(size)) == 0;
}

// MPICH 5 has no logic of Fortran's integers, which is no more than the standard asks for.
bool host_has_logic_of(MPI_Datatype type) {
  std::byte one[32] = {};
  std::byte other[32] = {};
  return PMPI_Allreduce(one, other, 1, type, MPI_LAND, MPI_COMM_SELF) == MPI_SUCCESS;
}

TEST(DatatypeMap, ServesExactlyWhatStandardAndHostAgreeOn) {
  DatatypeMap map(host(), MPI_COMM_SELF);
  const MPI_Op ops[] = {MPI_MAX,    MPI_MIN,    MPI_SUM,     MPI_PROD,  MPI_LAND,
                        MPI_BAND,   MPI_LOR,    MPI_BOR,     MPI_LXOR,  MPI_BXOR,
                        MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP, MPI_OP_NULL};
  const Pairs pairs = map.host_pairs();
  EXPECT_EQ(map.host_pairs(), pairs) << "asked again";
  int served = 0;
  for (const Predefined& p : kPredefined) {
    for (const MPI_Op op : ops) {
      Op mapped = Op::sum;
      const TypeRow* row = map.find(p.type, op, &mapped);
      const bool order = op == MPI_MIN || op == MPI_MAX;
      const bool logic = op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR;
      const bool wanted = in_standard(p.type_class, op) && !(order && host_compares_wrongly(p)) &&
                          !(logic && p.type_class == Class::fortran_integer && !host_has_logic_of(p.type));
      EXPECT_EQ(row != nullptr, wanted) << p.name << ", operation " << std::hex << op;
      if (row == nullptr) continue;
      ++served;
      int size = 0;
      PMPI_Type_size(p.type, &size);
      EXPECT_EQ(dtype_size(row->type), static_cast<std::size_t>(size)) << p.name;
      EXPECT_TRUE(map.known_size(p.type, op) > 0 && map.has(pairs, p.type, op)) << p.name;
      // The host must not refuse what we serve: checked as the host checks a call.
      std::byte in[64] = {};
      std::byte out[64] = {};
      EXPECT_EQ(PMPI_Allreduce(in, out, 1, p.type, op, MPI_COMM_SELF), MPI_SUCCESS) << p.name;
    }
  }
  EXPECT_GT(served, 250);
}

// Wrong handles.
#ifdef MPI_ABI
constexpr heddle_word kNoTypes[] = {0,
                                    1,
                                    0x101,
                                    0x1ff,
                                    0x200,
                                    0x204,
                                    0x242,
                                    0x300,
                                    0x309,
                                    0x1209,
                                    0x209u | std::uintptr_t{1} << 32,
                                    ~std::uintptr_t{0}};
constexpr heddle_word kNoOps[] = {0,
                                  1,
                                  0x1f,
                                  0x20,
                                  0x25,
                                  0x33,
                                  0x3c,
                                  0x41,
                                  0x121,
                                  0x209,
                                  0x21u | std::uintptr_t{1} << 32,
                                  ~std::uintptr_t{0}};
#else
constexpr heddle_word kNoTypes[] = {
    0, 1, MPI_INT | 0x80, MPI_INT | 0x100, 0x8c000000u, MPI_COMM_WORLD, ~heddle_word{0}};
constexpr heddle_word kNoOps[] = {0, MPI_SUM + 64, MPI_OP_NULL, MPI_INT, ~heddle_word{0}};
#endif

TEST(DatatypeMap, KnowsNoOtherHandles) {
  DatatypeMap map(host(), MPI_COMM_SELF);
  map.host_pairs();
  Op mapped = Op::sum;
  for (const heddle_word type : kNoTypes)
    EXPECT_EQ(map.find(abi::handle_of<MPI_Datatype>(type), MPI_SUM, &mapped), nullptr) << type;
  for (const heddle_word op : kNoOps)
    EXPECT_EQ(map.find(MPI_INT, abi::handle_of<MPI_Op>(op), &mapped), nullptr) << op;
}

#ifdef MPI_ABI
// A host may take the others for addresses.
TEST(Datatypes, AreNumbersOfTheirRangeOrAddresses) {
  for (const heddle_word no : {0x0, 0x1, 0x101, 0x1ff, 0x200, 0x300, 0x309, 0xfff})
    EXPECT_FALSE(abi::is_datatype(abi::handle_of<MPI_Datatype>(no))) << no;
  for (const heddle_word yes : {0x201, 0x209, 0x2eb, 0x2ff, 0x1000, 0x7fff0000})
    EXPECT_TRUE(abi::is_datatype(abi::handle_of<MPI_Datatype>(yes))) << yes;
}
#endif

// What calls that are not sums go by: no byte of a type that is not the host's may be touched without it.
TEST(PredefinedSizes, AreTheHosts) {
  abi::learn_types(host());
  int known = 0;
  for (const Predefined& p : kPredefined) {
    const std::size_t size = abi::predefined_size(p.type);
    if (size == 0) continue;
    ++known;
    MPI_Count hosts = 0;
    PMPI_Type_size_x(p.type, &hosts);
    EXPECT_EQ(size, static_cast<std::size_t>(hosts)) << p.name;
  }
  EXPECT_GE(known, 30);
  EXPECT_EQ(abi::predefined_size(MPI_DOUBLE_PRECISION), abi::size_of(host(), MPI_DOUBLE_PRECISION));
  EXPECT_EQ(abi::predefined_size(MPI_INTEGER), abi::size_of(host(), MPI_INTEGER));
  for (const MPI_Datatype pair : {MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_DOUBLE_INT, MPI_DATATYPE_NULL})
    EXPECT_EQ(abi::predefined_size(pair), 0u);
#ifdef MPI_ABI  // MPICH's handles say their sizes themselves, made up ones too
  for (const heddle_word type : kNoTypes)
    EXPECT_EQ(abi::predefined_size(abi::handle_of<MPI_Datatype>(type)), 0u) << type;
#endif
}

TEST(Registry, FindsEveryCommunicatorAlsoWhenProbesCollide) {
  Registry registry;
  std::vector<CommState*> states;
  constexpr int kMany = 5000;
  const auto handle = [](int i) { return abi::handle_of<MPI_Comm>(0x84000000u + static_cast<unsigned>(i)); };
  for (int i = 0; i < kMany; ++i) {
    states.push_back(registry.take());
    registry.publish(states.back(), handle(i));
  }
  for (int i = 0; i < kMany; ++i) {
    EXPECT_EQ(registry.find(handle(i)), states[static_cast<std::size_t>(i)]);
    EXPECT_EQ(registry.find_fast(handle(i)), states[static_cast<std::size_t>(i)]);  // find() put it there
  }
  for (int i = 0; i < kMany; i += 2)
    registry.recycle(states[static_cast<std::size_t>(i)]);
  for (int i = 0; i < kMany; ++i) {
    EXPECT_EQ(registry.find(handle(i)), i % 2 == 0 ? nullptr : states[static_cast<std::size_t>(i)]);
    if (i % 2 == 0) {
      EXPECT_EQ(registry.find_fast(handle(i)), nullptr);
    }
  }
}

TEST(Registry, RecyclesStates) {
  Registry registry;
  std::set<CommState*> seen;
  for (int i = 0; i < 10'000; ++i) {
    CommState* state = registry.take();
    seen.insert(state);
    EXPECT_EQ(state->calls, 0u);
    EXPECT_EQ(state->mode, Mode::counting);
    state->calls = 7;
    state->mode = Mode::host;
    state->name = "some name";
    const MPI_Comm handle = abi::handle_of<MPI_Comm>(1000u + static_cast<unsigned>(i) % 3);
    registry.publish(state, handle);
    EXPECT_EQ(registry.find_fast(handle), state);
    registry.recycle(state);
    EXPECT_EQ(registry.find_fast(handle), nullptr);
  }
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_EQ(registry.allocated(), 1u);
}

}  // namespace
}  // namespace heddle::backend

// Read by an address sanitizer if there is one. The host MPI leaks, from libraries that it has unloaded by
// the end, so that no suppression can name them.
extern "C" __attribute__((visibility("default"))) const char*
__asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "detect_leaks=0";
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
