#include "interpose/backend/host_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hash.hpp"
#include "interpose/backend/element_types.hpp"

namespace heddle::backend {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;  // elements, or bytes of a bcast or an allgather

template <typename T>
T at(const void* data, std::size_t k) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + k * sizeof value, sizeof value);
  return value;
}

Status of_host(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return {};
  return {Code::system, fmt::format("HEDDLE_CHECK=2: the host MPI's own {} failed with {}", call, rc)};
}

Status differs(std::size_t k, std::size_t count, const std::string& mine, const std::string& host) {
  return {Code::internal, fmt::format("HEDDLE_CHECK=2: element {} of {} is {}, and by the host MPI {}", k,
                                      count, mine, host)};
}

Status found_by(int rank) {
  return {Code::internal,
          fmt::format("HEDDLE_CHECK=2: rank {} has another result than the host MPI gives", rank)};
}

template <typename T>
std::string text_of(T value) {
  if constexpr (std::is_same_v<T, typename RealOf<T>::type>)
    return fmt::format("{}", value);
  else
    return fmt::format("({}, {})", value.real(), value.imag());
}

// Of both parts of a complex number the larger difference.
template <typename T>
auto distance(T a, T b) {
  if constexpr (std::is_same_v<T, typename RealOf<T>::type>)
    return std::abs(a - b);
  else
    return std::max(std::abs(a.real() - b.real()), std::abs(a.imag() - b.imag()));
}

// What bounds the error of one element: the sum of all magnitudes; of a product, that of those below 1 and of
// those above, between which all partial products lie. They are no number where one of the elements is none.
class Magnitudes {
 public:
  // `values`: room for those of a piece, borrowed.
  Magnitudes(Op op, std::vector<double>& values) : op_(op), values_(values) {}
  static std::size_t of_each(Op op) { return op == Op::prod ? 2 : 1; }

  template <typename T>
  void set(const void* in, std::size_t begin, std::size_t n) {
    values_.resize(of_each(op_) * n);
    for (std::size_t k = 0; k < n; ++k) {
      const auto magnitude = static_cast<double>(std::abs(at<T>(in, begin + k)));
      if (op_ != Op::prod) {
        values_[k] = magnitude;
        continue;
      }
      values_[2 * k] = std::isnan(magnitude) ? magnitude : std::min(magnitude, 1.0);
      values_[2 * k + 1] = std::isnan(magnitude) ? magnitude : std::max(magnitude, 1.0);
    }
  }
  // Of all ranks.
  int add_up(const HostMpi& mpi, MPI_Comm comm) {
    return mpi.Allreduce(MPI_IN_PLACE, values_.data(), static_cast<int>(values_.size()), MPI_DOUBLE,
                         op_ == Op::prod ? MPI_PROD : MPI_SUM, comm);
  }

  // How far apart two results of element `k` may be; infinite where that is not known.
  template <typename Real>
  long double bound(std::size_t k, int ranks) const {
    using Limits = std::numeric_limits<Real>;
    constexpr long double kAny = std::numeric_limits<long double>::infinity();
    constexpr long double kUnit = static_cast<long double>(Limits::epsilon()) / 2;
    // Half of the range is for complex numbers, whose magnitude is not less than either part.
    constexpr long double kMost = static_cast<long double>(Limits::max()) / 2;
    const long double steps = 2.0L * (ranks - 1) * 1.01L;
    if (op_ == Op::prod) {
      const long double low = values_[2 * k];
      const long double high = values_[2 * k + 1];
      // A product of two complex numbers is good to sqrt(5) u (Brent, Percival and Zimmermann, 2007).
      constexpr long double kComplex = 2.24L;
      const bool is_normal = high < kMost && low > static_cast<long double>(Limits::min()) / kUnit;
      return is_normal ? kComplex * steps * kUnit * low * high : kAny;
    }
    // A long double may be too small for the double that its magnitude is.
    const long double sum = values_[k] + ranks * std::numeric_limits<double>::denorm_min();
    if (op_ == Op::sum) return sum < kMost ? steps * kUnit * sum : kAny;
    return std::isnan(sum) ? kAny : 0;  // minima and maxima of what is no number go by the order
  }

 private:
  const Op op_;
  std::vector<double>& values_;
};

// The first element in which a piece of heddle's result is another one than the host's; n: none.
template <typename T>
std::size_t first_other(const RepeatedSum& sum, std::size_t begin, const std::byte* host, std::size_t n,
                        const Magnitudes& magnitudes, int ranks) {
  for (std::size_t k = 0; k < n; ++k) {
    const T mine = at<T>(sum.out, begin + k);
    const T other = at<T>(host, k);
    if (mine == other) continue;
    if constexpr (!std::is_integral_v<T>) {
      const long double bound = magnitudes.bound<typename RealOf<T>::type>(k, ranks);
      if (std::isinf(bound) || static_cast<long double>(distance(mine, other)) <= bound) continue;
    }
    return k;
  }
  return n;
}

}  // namespace

void HostResults::make_room(const RepeatedSum& sum) {
  const std::size_t elements = std::min(sum.count, kPiece);
  host_.resize(elements * dtype_size(sum.type));
  magnitudes_.reserve(elements * Magnitudes::of_each(sum.op));
}

void HostResults::make_room(std::size_t bytes) {
  host_.resize(std::min(bytes, kPiece));
}

Status HostResults::compare(const RepeatedSum& sum) {
  const std::size_t element = dtype_size(sum.type);
  Magnitudes magnitudes(sum.op, magnitudes_);
  std::optional<Difference> found;
  for (std::size_t begin = 0; begin < sum.count; begin += kPiece) {
    const std::size_t n = std::min(kPiece, sum.count - begin);
    const auto* const in = static_cast<const std::byte*>(sum.in) + begin * element;
    HEDDLE_TRY(
        of_host(mpi_.Allreduce(in, host_.data(), static_cast<int>(n), sum.host_type, sum.host_op, comm_),
                "MPI_Allreduce"));
    Status asked = with_type(sum.type, Status(), [&](auto like) -> Status {
      using T = decltype(like);
      if constexpr (!std::is_integral_v<T>) {
        magnitudes.set<T>(sum.in, begin, n);
        HEDDLE_TRY(of_host(magnitudes.add_up(mpi_, comm_), "MPI_Allreduce"));
      }
      const std::size_t k =
          found || sum.out == nullptr ? n : first_other<T>(sum, begin, host_.data(), n, magnitudes, size_);
      if (k < n) std::memcpy(found.emplace(Difference{begin + k}).host, host_.data() + k * element, element);
      return {};
    });
    if (!asked.ok()) return asked;
  }
  int who = -1;
  HEDDLE_TRY(agree(found.has_value(), &who));
  if (found) {
    return with_type(sum.type, Status(), [&](auto like) {
      using T = decltype(like);
      return differs(found->place, sum.count, text_of(at<T>(sum.out, found->place)),
                     text_of(at<T>(found->host, 0)));
    });
  }
  return who >= 0 ? found_by(who) : Status();
}

Status HostResults::allreduce(const RepeatedSum& sum) {
  HEDDLE_TRY(compare(sum));
  // What pads a long double is anything.
  if (sum.type == DType::f80 || sum.type == DType::c80) return {};
  return compare_bits(sum.out, sum.count * dtype_size(sum.type));
}

Status HostResults::reduce(const RepeatedSum& sum) {
  return compare(sum);
}

// By a hash.
Status HostResults::compare_bits(const void* out, std::size_t bytes) const {
  const std::uint64_t mine = fnv1a(std::string_view(static_cast<const char*>(out), bytes));
  std::uint64_t first = mine;
  HEDDLE_TRY(of_host(mpi_.Bcast(&first, sizeof first, MPI_BYTE, 0, comm_), "MPI_Bcast"));
  int who = -1;
  HEDDLE_TRY(agree(first != mine, &who));
  if (first != mine) return {Code::internal, "HEDDLE_CHECK=2: the result has other bits here than on rank 0"};
  return who >= 0 ? found_by(who) : Status();
}

Status HostResults::bcast(const void* data, std::size_t bytes, int root) {
  std::optional<Difference> found;
  for (std::size_t begin = 0; begin < bytes; begin += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - begin);
    const auto* const piece = static_cast<const std::byte*>(data) + begin;
    if (rank_ == root) std::memcpy(host_.data(), piece, n);
    HEDDLE_TRY(of_host(mpi_.Bcast(host_.data(), static_cast<int>(n), MPI_BYTE, root, comm_), "MPI_Bcast"));
    const std::byte* const there = std::mismatch(piece, piece + n, host_.data()).first;
    if (there == piece + n || found) continue;
    const auto k = static_cast<std::size_t>(there - piece);
    found.emplace(Difference{begin + k}).host[0] = host_[k];
  }
  return judge_bytes(found, static_cast<const std::byte*>(data), bytes);
}

Status HostResults::judge_bytes(const std::optional<Difference>& found, const std::byte* given,
                                std::size_t bytes) const {
  int who = -1;
  HEDDLE_TRY(agree(found.has_value(), &who));
  if (!found) return who >= 0 ? found_by(who) : Status();
  const auto text = [](std::byte byte) { return fmt::format("{:#04x}", std::to_integer<unsigned>(byte)); };
  return differs(found->place, bytes, "byte " + text(given[found->place]), text(found->host[0]));
}

std::size_t HostResults::piece_of_each(std::size_t each) const {
  return std::clamp(each, std::size_t{1}, std::max<std::size_t>(1, kPiece / static_cast<std::size_t>(size_)));
}

void HostResults::make_room_to_gather(std::size_t each) {
  host_.resize(piece_of_each(each) * static_cast<std::size_t>(size_));
}

Status HostResults::allgather(const std::byte* mine, const std::byte* all, std::size_t each) {
  std::optional<Difference> found;
  const std::size_t piece = piece_of_each(each);
  for (std::size_t begin = 0; begin < each; begin += piece) {
    const std::size_t n = std::min(piece, each - begin);
    HEDDLE_TRY(of_host(mpi_.Allgather(mine + begin, static_cast<int>(n), MPI_BYTE, host_.data(),
                                      static_cast<int>(n), MPI_BYTE, comm_),
                       "MPI_Allgather"));
    for (std::size_t r = 0; r < static_cast<std::size_t>(size_) && !found; ++r) {
      const std::byte* const given = all + r * each + begin;
      const std::byte* const host = host_.data() + r * n;
      const auto k = static_cast<std::size_t>(std::mismatch(given, given + n, host).first - given);
      if (k < n) found.emplace(Difference{r * each + begin + k}).host[0] = host[k];
    }
  }
  return judge_bytes(found, all, each * static_cast<std::size_t>(size_));
}

// So that all go on alike: a rank that has found something, if any.
Status HostResults::agree(bool found, int* who) const {
  *who = found ? rank_ : -1;
  return of_host(mpi_.Allreduce(MPI_IN_PLACE, who, 1, MPI_INT, MPI_MAX, comm_), "MPI_Allreduce");
}

}  // namespace heddle::backend
