#include "select/selector.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

namespace heddle {
namespace {

bool within(std::int64_t value, const std::int64_t (&range)[2]) {
  return value >= range[0] && value <= range[1];
}

// A choice serves all sizes of a class, from one power of two to the next: a rule decides about every class
// of which it names a size.
bool meets_class_of(std::size_t bytes, const std::int64_t (&range)[2]) {
  constexpr std::size_t kMost = INT64_MAX;
  const std::size_t least = std::min(std::bit_floor(bytes), kMost);
  const std::size_t most = std::min(bytes == 0 ? 0 : least + (least - 1), kMost);
  return static_cast<std::int64_t>(least) <= range[1] && static_cast<std::int64_t>(most) >= range[0];
}

// Straight between powers of two: std::log2 need not be the same on all machines. For n of 1 or more.
double log2_of(std::int32_t n) {
  const auto whole = static_cast<std::uint32_t>(n);
  return static_cast<double>(std::bit_width(whole)) - 2 +
         static_cast<double>(n) / static_cast<double>(std::bit_floor(whole));
}

std::int32_t ranks_of_node(const TopologyView& topology) {
  return topology.size() / topology.nodes();
}

// What grew once from `few` to `more` grows how often from there to `all`? Of uneven nodes the ones that were
// kept may show no growth.
double steps_beyond(bool linear, std::int32_t few, std::int32_t more, std::int32_t all) {
  if (more <= few || all <= more) return 0;
  if (linear) return static_cast<double>(all - more) / (more - few);
  return (log2_of(all) - log2_of(more)) / (log2_of(more) - log2_of(few));
}

constexpr double kToTheEnd = std::numeric_limits<double>::infinity();
// What costs more than so many times the least price is priced no further.
constexpr double kWorthTelling = 1.1;
// Nor what a few ranks by themselves are guessed to take longer for: on nodes of several ranks a guess may be
// somewhat above the price.
constexpr double kHopeless = 1.5;

// What a schedule's vector has where the caller speaks of `bytes`.
std::size_t in_all(const TopologyView& on, const Algorithm& algorithm, std::size_t bytes) {
  return algorithm.collective == Collective::allgather ? bytes * static_cast<std::size_t>(on.size()) : bytes;
}

double price_of_all(const TopologyView& on, const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                    const CostModel& model, double give_up_ns) {
  return price(
      on, [&](std::int32_t rank) { return algorithm.build(on, rank, shape); }, in_all(on, algorithm, bytes),
      model, give_up_ns);
}

// The most that some of the ranks take by themselves.
double alone(const TopologyView& topology, const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
             const CostModel& model, std::initializer_list<std::int32_t> ranks) {
  double most_ns = 0;
  for (const std::int32_t rank : ranks) {
    const Schedule schedule = algorithm.build(topology, rank, shape);
    most_ns =
        std::max(most_ns, price_alone(topology, schedule, rank, in_all(topology, algorithm, bytes), model));
  }
  return most_ns;
}

}  // namespace

CostModel default_cost_model(LinearCost within_node, MessageCost between_nodes, bool domains) {
  CostModel model;
  // Within a node one core writes and another one reads, who is as busy with each message.
  const auto level = [](LinearCost message) {
    return LevelCost{0, message.fixed_ns * 0.5, {message.fixed_ns * 0.5, message.per_byte_ns}};
  };
  // Sender and receiver handle it, one after the other; what is left is on the way.
  LevelCost between{between_nodes.fixed_ns - 2 * between_nodes.handling_ns,
                    between_nodes.handling_ns,
                    {between_nodes.handling_ns, between_nodes.per_byte_ns}};
  between.least_gap_ns = between_nodes.least_ns - between.latency_ns - between.overhead_ns;
  model.levels = {level(within_node), between};
  model.crossing = between_nodes.crossing;
  model.fold = {10, 0.06};
  model.copy = {10, 0.05};
  // A line comes faster from a core of the same domain; every member moves about the vector once, however
  // many share the work.
  model.team.fill({{160, 0.1}, {200, 0.1}});
  model.team[static_cast<std::size_t>(TeamKind::domain)] = {{80, 0.1}, {200, 0.1}};
  if (!domains) model.team[static_cast<std::size_t>(TeamKind::node)].small.fixed_ns = 80;
  return model;
}

Selector::Selector(const TopologyView& topology, CostModel model, Abilities abilities,
                   const Preferences& preferences)
    : topology_(topology),
      model_(std::move(model)),
      abilities_(abilities),
      preferences_(preferences),
      smaller_(stand_ins(topology)) {}

bool Selector::runs(const Algorithm& algorithm, bool messages_only) const {
  if (algorithm.needs_team && (!abilities_.team || messages_only)) return false;
  if (algorithm.needs_domains && !topology_.has_domains()) return false;
  // Whole-node algorithms fit one node only; everything that also sends fits any.
  if (algorithm.needs_team && !algorithm.needs_messages) return topology_.nodes() == 1;
  return !algorithm.needs_messages || abilities_.messages;
}

std::optional<Selection> Selector::by_rule(Collective collective, std::size_t bytes,
                                           bool messages_only) const {
  const Algorithm* const forced = preferences_.forced_for(collective);
  if (forced != nullptr && runs(*forced, messages_only)) {
    Selection selection;
    selection.by = ChosenBy::force;
    // The algorithm is given, its shape is not: the cheapest of those it suggests.
    selection.choice.price_ns = std::numeric_limits<double>::infinity();
    for (const Shape& shape : forced->shapes(topology_, bytes)) {
      const double ns = price_of(*forced, shape, bytes);
      if (ns < selection.choice.price_ns) selection.choice = {forced, shape, ns};
    }
    return selection;
  }
  if (auto tuned = first_match(preferences_.tuning.rules, ChosenBy::tuning, collective, bytes, messages_only))
    return tuned;
  return first_match(measured_, ChosenBy::measuring, collective, bytes, messages_only);
}

std::optional<Selection> Selector::first_match(const std::vector<TuningRule>& rules, ChosenBy by,
                                               Collective collective, std::size_t bytes,
                                               bool messages_only) const {
  for (const TuningRule& rule : rules) {
    if (rule.collective != collective || !runs(*rule.algorithm, messages_only)) continue;
    if (!within(topology_.size(), rule.ranks) || !within(topology_.nodes(), rule.nodes) ||
        !meets_class_of(bytes, rule.bytes)) {
      continue;
    }
    Selection selection;
    selection.by = by;
    selection.choice = {rule.algorithm, rule.shape, 0};
    return selection;
  }
  return std::nullopt;
}

double Selector::guess(const Choice& choice, std::size_t bytes) const {
  const double crossing = choice.algorithm->in_rounds ? std::max(1.0, model_.crossing) : 1;
  return crossing *
         alone(topology_, *choice.algorithm, choice.shape, bytes, model_, {0, topology_.size() / 2});
}

// In rounds in which all send far, all messages are such as the crossing was measured with.
double Selector::price_of(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                          double give_up_ns) const {
  if (!algorithm.in_rounds) return price_on_idle_network(algorithm, shape, bytes, give_up_ns);
  const double crossing = std::max(1.0, model_.crossing);
  return crossing * price_on_idle_network(algorithm, shape, bytes, give_up_ns / crossing);
}

double Selector::price_on_idle_network(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                                       double give_up_ns) const {
  if (smaller_) return price_at_scale(*smaller_, algorithm, shape, bytes, give_up_ns);
  return price_of_all(topology_, algorithm, shape, bytes, model_, give_up_ns);
}

// What a few ranks take by themselves on the machine as it is, and what waiting for ranks further away or of
// the same node adds: that is seen on smaller machines. It grows as the number of nodes does along a chain,
// else as its logarithm, and as the ranks of a node, which share its link. Where no rank by itself says
// anything, all is waiting.
double Selector::price_at_scale(const StandIns& smaller, const Algorithm& algorithm, const Shape& shape,
                                std::size_t bytes, double give_up_ns) const {
  const auto by_itself = [&](const TopologyView& on) {
    if (algorithm.in_rounds) return 0.0;
    // Where roots, leaves, and the odd ones of other counts than powers of two are.
    const std::int32_t p = on.size();
    return alone(on, algorithm, shape, bytes, model_, {0, 1, 2, p / 2 - 1, p / 2, p - 1});
  };
  const auto waiting = [&](const TopologyView& on, double most_ns) {
    const double alone_ns = by_itself(on);
    return std::max(0.0, price_of_all(on, algorithm, shape, bytes, model_, most_ns + alone_ns) - alone_ns);
  };
  const double alone_ns = by_itself(topology_);
  if (alone_ns > give_up_ns) return alone_ns;
  const double large_ns = waiting(smaller.large, give_up_ns - alone_ns);
  if (alone_ns + large_ns > give_up_ns) return alone_ns + large_ns;
  const auto growth = [&](const TopologyView& from, double steps) {
    const double grown_ns = std::max(0.0, large_ns - waiting(from, kToTheEnd));
    return large_ns > 0 ? 1 + grown_ns / large_ns * steps : 1;
  };
  double scale = 1;
  if (smaller.fewer_nodes)
    scale *= growth(*smaller.fewer_nodes, steps_beyond(algorithm.neighbours, smaller.fewer_nodes->nodes(),
                                                       smaller.large.nodes(), topology_.nodes()));
  if (smaller.fewer_ranks)
    scale *=
        growth(*smaller.fewer_ranks, steps_beyond(true, ranks_of_node(*smaller.fewer_ranks),
                                                  ranks_of_node(smaller.large), ranks_of_node(topology_)));
  return alone_ns + large_ns * scale;
}

double Selector::price_of_streams(const Choice& choice, const std::function<StreamCosts(int ranks)>& costs_of,
                                  double give_up_ns) const {
  const TopologyView& on = smaller_ ? smaller_->large : topology_;
  return price_streams(
      on, [&](std::int32_t rank) { return choice.algorithm->build(on, rank, choice.shape); },
      costs_of(on.size()), model_, give_up_ns);
}

std::vector<Choice> Selector::all(Collective collective, std::size_t bytes, bool messages_only) const {
  std::vector<Choice> found;
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != collective || !runs(algorithm, messages_only)) continue;
    // With one node, or nothing but nodes of one rank, a hierarchical algorithm is another one under a second
    // name.
    const bool flat = topology_.nodes() == 1 || topology_.nodes() == topology_.size();
    if (algorithm.by_nodes && flat) continue;
    if (algorithm.by_distance && topology_.levels() == 1) continue;
    for (const Shape& shape : algorithm.shapes(topology_, bytes))
      found.push_back({&algorithm, shape, 0});
  }
  return found;
}

std::vector<Choice> Selector::candidates(Collective collective, std::size_t bytes, bool messages_only) const {
  std::vector<Choice> found = all(collective, bytes, messages_only);
  if (preferences_.reproducible &&
      (collective == Collective::allreduce || collective == Collective::reduce)) {
    const bool team = abilities_.team && !messages_only;
    std::erase_if(found, [&](const Choice& c) { return !folds_alike(topology_, team, c); });
  }
  return found;
}

// The most promising first, so that what others take is soon known to be too much. The order has no influence
// on the outcome.
double Selector::price_all(std::vector<Choice>& offered, std::size_t bytes) const {
  struct Guess {
    double ns;
    Choice* choice;
  };
  std::vector<Guess> guesses;
  for (Choice& c : offered)
    guesses.push_back({guess(c, bytes), &c});
  std::ranges::stable_sort(guesses, {}, &Guess::ns);
  double least_ns = std::numeric_limits<double>::infinity();
  for (const auto& [guess_ns, c] : guesses) {
    c->price_ns = guess_ns > least_ns * kHopeless
                      ? guess_ns
                      : price_of(*c->algorithm, c->shape, bytes, least_ns * kWorthTelling);
    least_ns = std::min(least_ns, c->price_ns);
  }
  return least_ns;
}

// The cheapest, or another one within kAsGood of it, which a model cannot tell apart: what loses less to that
// which the price leaves out. On few nodes that are neighbours, streams between the same two all along: on
// four hosts they took 5 to 10% less than others of the same price. But their steps are as many as there are
// nodes, and each may be late: on many nodes it is anything else, in the fewest pieces. In simulation a ring
// took 1% more than Rabenseifner's algorithm with 16 nodes and 14% more with 64, and two trees of 16 pieces
// 22% more than a scatter and exchange with 1,024, all for the same price.
Selection Selector::by_price(Collective collective, std::size_t bytes, bool messages_only) const {
  constexpr double kAsGood = 1.03;
  constexpr int kFewNodes = 16;
  const bool few = topology_.nodes() <= kFewNodes;
  std::vector<Choice> offered = candidates(collective, bytes, messages_only);
  // Nobody knows what rounds take in which all send far: on a simulated dragonfly of 64 a bcast took 5.4
  // times its price, on a fat tree its price.
  std::erase_if(offered, [&](const Choice& c) { return c.algorithm->in_rounds && model_.crossing <= 0; });
  const double least_ns = price_all(offered, bytes);
  // Of those that `fits` is for; of equal ones the first in the catalog's order.
  const auto cheapest = [&](auto fits) {
    const Choice* found = nullptr;
    for (const Choice& c : offered) {
      if (fits(c) && (found == nullptr || c.price_ns < found->price_ns)) found = &c;
    }
    return found;
  };
  Selection selection;
  selection.choice.price_ns = std::numeric_limits<double>::infinity();
  if (offered.empty()) return selection;
  const auto as_good = [&](const Choice& c) { return c.price_ns <= least_ns * kAsGood; };
  const auto robust = [&](const Choice& c) { return as_good(c) && c.algorithm->neighbours == few; };
  std::uint32_t pieces = std::numeric_limits<std::uint32_t>::max();
  for (const Choice& c : offered) {
    if (robust(c) && !few) pieces = std::min(pieces, c.shape.chunks);
  }
  const Choice* chosen = cheapest([&](const Choice& c) { return robust(c) && c.shape.chunks <= pieces; });
  if (chosen == nullptr) chosen = cheapest(as_good);
  selection.choice = *chosen;
  const Choice* next = cheapest([&](const Choice& c) {
    return c.algorithm != selection.choice.algorithm && c.price_ns <= least_ns * kWorthTelling;
  });
  if (next != nullptr) {
    selection.runner_up = next->algorithm;
    selection.runner_up_ns = next->price_ns;
  }
  return selection;
}

Result<Selection> Selector::select(Collective collective, std::size_t bytes, bool messages_only) const {
  if (std::optional<Selection> ruled = by_rule(collective, bytes, messages_only)) return *ruled;
  Selection selection = by_price(collective, bytes, messages_only);
  if (selection.choice.algorithm == nullptr) {
    return Status(Code::unsupported, std::string("no algorithm for ") + collective_name(collective) +
                                         " runs over " + std::to_string(topology_.size()) + " ranks on " +
                                         std::to_string(topology_.nodes()) + " nodes with these transports");
  }
  return selection;
}

}  // namespace heddle
