// What heddle-tune prints of what was measured.
#include "heddle_tune/report.hpp"

#include <gtest/gtest.h>

#include <string>

#include "select/catalog.hpp"

namespace heddle::tune {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One size, of which the price of the first is `ratio` times its time.
MeasuredChoices measured_with(double ratio) {
  TriedCandidate first;
  first.choice.algorithm = find_algorithm(Collective::allreduce, "ring");
  first.choice.price_ns = ratio * 1e6;
  first.outcome = TrialOutcome::finalist;
  first.seconds = 1e-3;
  TriedSize tried;
  tried.size.bytes = 8;
  tried.candidates = {first};
  tried.decided = true;
  MeasuredChoices measured;
  measured.sizes = {tried};
  measured.spent_s = 2;
  return measured;
}

TEST(TuneReport, RatiosHaveDigitsThatSaySomething) {
  for (const auto& [ratio, text] :
       {std::pair(1.234, "1.23"), std::pair(0.9, "0.90"), std::pair(0.0634, "0.063"),
        std::pair(0.00321, "0.0032"), std::pair(0.0000071, "0.0000071")}) {
    const std::string report = as_text({2, 1, "two ranks", true}, measured_with(ratio));
    EXPECT_TRUE(has(report, std::string("  ") + text + "\n")) << report;
    EXPECT_TRUE(has(report, std::string("A price is ") + text + " times the time measured")) << report;
    EXPECT_TRUE(has(report, std::string(text) + " to " + text + " for all")) << report;
  }
}

TEST(TuneReport, SaysWhatHadTooLittleTime) {
  MeasuredChoices measured = measured_with(0.5);
  const std::string whole = as_text({2, 1, "two ranks", true}, measured);
  EXPECT_TRUE(has(whole, "Not run: 0 that were expected to take several times as long as the fastest.\n"))
      << whole;
  EXPECT_FALSE(has(whole, "ndecided") || has(whole, "no time")) << whole;
  measured.sizes[0].decided = false;
  measured.sizes[0].candidates.push_back(measured.sizes[0].candidates[0]);
  measured.sizes[0].candidates[1].outcome = TrialOutcome::no_time;
  measured.complete = false;
  const std::string part = as_text({2, 1, "two ranks", true}, measured);
  EXPECT_TRUE(has(part, "  (undecided)  ") && has(part, "fastest, 1 that there was no time for.\n")) << part;
  EXPECT_TRUE(has(part, "\nUndecided: 1 of 1 sizes, whose share of the time was too short. ")) << part;
}

TEST(TuneReport, SaysWhereRanksWereWithoutTheirCores) {
  MeasuredChoices measured = measured_with(0.5);
  measured.without_core = 0.09;
  EXPECT_FALSE(has(as_text({2, 1, "two ranks", true}, measured), "without its core"));
  measured.without_core = 0.7;
  EXPECT_TRUE(
      has(as_text({2, 1, "two ranks", true}, measured), "A rank was without its core for 70% of that"));
  EXPECT_TRUE(has(as_json({2, 1, "two ranks", true}, measured), "\"without_core\": 0.7"));
}

}  // namespace
}  // namespace heddle::tune
