#include "heddle_tune/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::tune {
namespace {

bool was_run(const TriedCandidate& candidate) {
  return candidate.outcome == TrialOutcome::finalist || candidate.outcome == TrialOutcome::timed;
}

const char* outcome_text(TrialOutcome outcome) {
  switch (outcome) {
    case TrialOutcome::finalist:
      return "final";
    case TrialOutcome::timed:
      return "first round";
    case TrialOutcome::hopeless:
      return "hopeless, not run";
    case TrialOutcome::no_time:
      break;
  }
  return "no time, not run";
}

double price_over_time(const TriedCandidate& candidate) {
  return candidate.choice.price_ns * 1e-9 / candidate.seconds;
}

// Two decimals at least, and two digits that say something: of ranks that wait for their cores ratios become
// small.
std::string ratio_text(double ratio) {
  constexpr int kMostDecimals = 9;
  if (!(ratio > 0 && ratio < 0.1)) return fmt::format("{:.2f}", ratio);
  return fmt::format("{:.{}f}", ratio,
                     std::min(kMostDecimals, 1 - static_cast<int>(std::floor(std::log10(ratio)))));
}

// The least and the most of what was added.
struct Range {
  double least = 0;
  double most = 0;
  bool empty = true;

  void add(double value) {
    least = empty ? value : std::min(least, value);
    most = empty ? value : std::max(most, value);
    empty = false;
  }
  std::string text(const char* unit) const {
    if (empty) return "-";
    const std::string low = ratio_text(least);
    const std::string high = ratio_text(most);
    return low == high ? low + unit : fmt::format("{} to {}{}", low, high, unit);
  }
};

// Neighbouring sizes with the same choices.
struct Row {
  Collective collective = Collective::allreduce;
  std::size_t first = 0;
  std::size_t last = 0;
  std::string by_price;
  std::string measured;
  Range faster;  // the first one's time over the winner's
  Range price;   // the first one's price over its time
};

std::string measured_text(const TriedSize& tried) {
  if (!tried.decided) return "(undecided)";
  return tried.winner == 0 ? "(stays)" : choice_text(tried.candidates[tried.winner].choice);
}

std::vector<Row> rows_of(const MeasuredChoices& measured, Collective collective) {
  std::vector<Row> rows;
  for (const TriedSize& tried : measured.sizes) {
    if (tried.collective != collective || tried.candidates.empty()) continue;
    const TriedCandidate& first = tried.candidates.front();
    const std::string by_price = choice_text(first.choice);
    const std::string found = measured_text(tried);
    if (rows.empty() || rows.back().by_price != by_price || rows.back().measured != found)
      rows.push_back({collective, tried.size.bytes, tried.size.bytes, by_price, found, {}, {}});
    Row& row = rows.back();
    row.last = tried.size.bytes;
    if (was_run(first)) row.price.add(price_over_time(first));
    if (tried.decided && tried.winner != 0)
      row.faster.add(first.seconds / tried.candidates[tried.winner].seconds);
  }
  return rows;
}

std::string table_text(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::size_t by_price = 8;
  std::size_t found = 8;
  for (const Row& row : rows) {
    by_price = std::max(by_price, row.by_price.size());
    found = std::max(found, row.measured.size());
  }
  std::string out =
      fmt::format("\n{:<22}  {:<{}}  {:<{}}  {:<14}  {}\n", collective_name(rows.front().collective),
                  "by price", by_price, "measured", found, "faster by", "price / time");
  for (const Row& row : rows) {
    const std::string sizes = row.first == row.last
                                  ? bytes_text(row.first)
                                  : fmt::format("{} to {}", bytes_text(row.first), bytes_text(row.last));
    out += fmt::format("  {:<20}  {:<{}}  {:<{}}  {:<14}  {}\n", sizes, row.by_price, by_price, row.measured,
                       found, row.faster.text("x"), row.price.text(""));
  }
  return out;
}

struct Totals {
  std::vector<double> ratios;  // of prices to times, of all that was run, rising
  std::size_t hopeless = 0;
  std::size_t no_time = 0;
  std::size_t undecided = 0;  // sizes
};

Totals totals_of(const MeasuredChoices& measured) {
  Totals totals;
  for (const TriedSize& tried : measured.sizes) {
    totals.undecided += tried.decided ? 0 : 1;
    for (const TriedCandidate& candidate : tried.candidates) {
      if (was_run(candidate)) totals.ratios.push_back(price_over_time(candidate));
      totals.hopeless += candidate.outcome == TrialOutcome::hopeless ? 1 : 0;
      totals.no_time += candidate.outcome == TrialOutcome::no_time ? 1 : 0;
    }
  }
  std::ranges::sort(totals.ratios);
  return totals;
}

// Of rising values.
double quantile(const std::vector<double>& rising, double part) {
  return rising[static_cast<std::size_t>(part * static_cast<double>(rising.size() - 1))];
}

nlohmann::json candidate_json(const TriedCandidate& candidate) {
  const Choice& choice = candidate.choice;
  nlohmann::json out = {{"algorithm", choice.algorithm->name}, {"radix", choice.shape.radix},
                        {"chunks", choice.shape.chunks},       {"leaders", choice.shape.leaders},
                        {"price_us", choice.price_ns / 1e3},   {"outcome", outcome_text(candidate.outcome)}};
  out["measured_us"] = was_run(candidate) ? nlohmann::json(candidate.seconds * 1e6) : nlohmann::json();
  return out;
}

}  // namespace

std::string bytes_text(std::size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit)
    bytes /= 1024;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string choice_text(const Choice& choice) {
  std::string text = choice.algorithm->name;
  if (choice.shape.radix != 2) text += fmt::format(", radix {}", choice.shape.radix);
  if (choice.shape.chunks != 1) text += fmt::format(", chunks {}", choice.shape.chunks);
  if (choice.shape.leaders != 1) text += fmt::format(", leaders {}", choice.shape.leaders);
  return text;
}

std::string as_text(const Subject& subject, const MeasuredChoices& measured) {
  std::string out = fmt::format("{}\n", subject.communicator);
  for (const Collective collective : {Collective::allreduce, Collective::bcast})
    out += table_text(rows_of(measured, collective));
  const Totals totals = totals_of(measured);
  out += fmt::format("\nMeasured for {:.1f} s", measured.spent_s);
  if (!totals.ratios.empty())
    out += fmt::format(
        ", {} candidates. A price is {} times the time measured in the median,\n{} to {} times "
        "for eight of ten, {} to {} for all",
        totals.ratios.size(), ratio_text(quantile(totals.ratios, 0.5)),
        ratio_text(quantile(totals.ratios, 0.1)), ratio_text(quantile(totals.ratios, 0.9)),
        ratio_text(totals.ratios.front()), ratio_text(totals.ratios.back()));
  out += fmt::format(". Not run: {} that were expected to take several times as long as the fastest",
                     totals.hopeless);
  if (totals.no_time > 0) out += fmt::format(", {} that there was no time for", totals.no_time);
  out += ".\n";
  if (measured.without_core > kWithoutCore)
    out += fmt::format(
        "A rank was without its core for {:.0f}% of that: times are those of waiting for a core as well, and "
        "ratios of "
        "prices\nto them too small. Tune again where nothing else runs on these cores.\n",
        100 * measured.without_core);
  if (!measured.complete)
    out += fmt::format(
        "Undecided: {} of {} sizes, whose share of the time was too short. The choice by price stays there; "
        "--budget gives more.\n",
        totals.undecided, measured.sizes.size());
  return out;
}

std::string as_json(const Subject& subject, const MeasuredChoices& measured) {
  nlohmann::json sizes = nlohmann::json::array();
  for (const TriedSize& tried : measured.sizes) {
    nlohmann::json candidates = nlohmann::json::array();
    for (const TriedCandidate& candidate : tried.candidates)
      candidates.push_back(candidate_json(candidate));
    sizes.push_back({{"collective", collective_name(tried.collective)},
                     {"bytes", tried.size.bytes},
                     {"serves", {tried.size.from, tried.size.up_to}},
                     {"decided", tried.decided},
                     {"winner", tried.winner},
                     {"candidates", std::move(candidates)}});
  }
  const nlohmann::json out = {{"version", HEDDLE_VERSION_STRING}, {"ranks", subject.ranks},
                              {"nodes", subject.nodes},           {"communicator", subject.communicator},
                              {"own_cores", subject.own_cores},   {"measured_s", measured.spent_s},
                              {"complete", measured.complete},    {"without_core", measured.without_core},
                              {"sizes", std::move(sizes)}};
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace heddle::tune
