#include "device/device_codes.hpp"

#include <algorithm>
#include <vector>

#include "base/round_up.hpp"
#include "device/device_path.hpp"

namespace heddle {
namespace {

unsigned bits_of(Codec codec) {
  switch (codec) {
    case Codec::f16:
    case Codec::bf16:
      return 16;
    case Codec::qsgd8:
      return 8;
    case Codec::qsgd4:
      return 4;
    case Codec::qsgd2:
    case Codec::ternary:
      return 2;
    case Codec::sign:
      return 1;
    case Codec::exact:
      break;
  }
  return 0;
}

}  // namespace

gpu::Quantiser quantiser_of(const CodecSettings& how) {
  return {bits_of(how.codec), how.bucket, how.seed, how.codec == Codec::bf16};
}

bool DeviceCoded::is_for_gpus() const {
  return n > 0 && bits_of(how.codec) > 0;
}

// Whole buckets: then codes are what they are in one piece.
std::size_t CodedSum::values_at_once(const ScratchLayout& layout, const gpu::Quantiser& how, std::size_t n) {
  const std::size_t bucket = how.bucket_length(n);
  return bucket == 0 ? 0 : layout.half / how.coded_bytes(bucket) * bucket;
}

CodedSum::CodedSum(const EntriesWorker& worker, const CodedJob& job, std::uint64_t asked)
    : AskedWork(asked, static_cast<std::size_t>(worker.worker.size)),
      worker_(worker),
      job_(job),
      room_(worker.direct ? std::max<std::size_t>(job.n, 1)
                          : std::max<std::size_t>(values_at_once(worker.worker.layout, job.how, job.n), 1)),
      pieces_(div_up(job.n, room_)) {
  places()[static_cast<std::size_t>(worker.worker.rank)] = word(job.codes);
}

std::span<std::uint64_t> CodedSum::later_words(std::size_t k) {
  if (k == 1 && worker_.direct) return places();
  if (k != steps()) return {};
  bad_ = worker_.sparse->bad_codes() ? 1 : 0;
  return std::span(&bad_, 1);
}

// After meeting k piece k - 1 of all ranks is there; the next one goes into the other half, which nobody
// reads any more. Nothing has changed before meeting 0, in which all have said that they can.
Status CodedSum::step(std::size_t k) {
  if (k == 0) {
    HEDDLE_TRY(worker_.worker.link->after_earlier_work());
    if (job_.left_out != nullptr) job_.residual->changes_on_gpu();
    return code(0);
  }
  HEDDLE_TRY(sum(k - 1));
  return k < pieces_ ? code(k) : worker_.sparse->tell();
}

std::byte* CodedSum::codes_of(int rank, std::size_t piece) const {
  if (worker_.direct) return pointer(places()[static_cast<std::size_t>(rank)]);
  return worker_.worker.link->scratch(rank) + piece % 2 * worker_.worker.layout.half;
}

Status CodedSum::code(std::size_t piece) {
  const std::size_t begin = begin_of(piece);
  float* const left_out = job_.left_out != nullptr ? job_.left_out + begin : nullptr;
  std::byte* const to = worker_.direct ? job_.codes : codes_of(worker_.worker.rank, piece);
  return worker_.sparse->quantise(job_.how, job_.in + begin, left_out, left_out, count_of(piece), begin, to);
}

Status CodedSum::sum(std::size_t piece) {
  std::vector<const void*> codes;
  for (int r = 0; r < worker_.worker.size; ++r)
    codes.push_back(codes_of(r, piece));
  return worker_.sparse->dequantise(job_.how, codes, count_of(piece), job_.out + begin_of(piece));
}

}  // namespace heddle
