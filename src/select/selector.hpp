// The choice of an algorithm: forced by HEDDLE_ALGORITHM, else by a tuning file's rule, else the cheapest by
// price.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "schedule/pricer.hpp"
#include "schedule/topology_view.hpp"
#include "select/catalog.hpp"
#include "select/stand_ins.hpp"

namespace heddle {

// What the communicator can run.
struct Abilities {
  bool team = false;     // every node with more than one rank has a Team
  bool messages = true;  // a transport reaches every rank
};

// One line of a tuning file: {"collective": "allreduce", "ranks": [2, 64], "nodes": [1, 1], "bytes": [0,
// 4096], "algorithm": "ring", "radix": 4, "chunks": 8, "leaders": 2}; ranges are inclusive and may be left
// out, as may radix, chunks and leaders. A size stands for all sizes of its class (plan_cache.hpp).
struct TuningRule {
  Collective collective = Collective::allreduce;
  std::int64_t ranks[2] = {1, INT64_MAX};
  std::int64_t nodes[2] = {1, INT64_MAX};
  std::int64_t bytes[2] = {0, INT64_MAX};
  const Algorithm* algorithm = nullptr;
  Shape shape;
};

struct Tuning {
  std::vector<TuningRule> rules;  // the first that matches wins
  std::optional<std::size_t>
      streamed_from;        // bytes; results from this size on are stored past the cache; SIZE_MAX: none
  bool found_once = false;  // of measured ones that are kept: by one job, which is to be confirmed by another
};

// Reads {"version": 1, "rules": [...], "streamed_results_from": BYTES or "never", "found_once": true}, the
// last two of which may be left out. The status names rule and key. Never throws, whatever the text is.
// `made_for`, unless empty, must be what the text's "made_for" says.
Result<Tuning> parse_tuning(std::string_view text, std::string_view made_for = {});
// Such a text.
std::string write_tuning(const Tuning& tuning, std::string_view made_for);
// Likewise from a file, which the status names too.
Result<Tuning> read_tuning_file(const std::string& path);
// Its text.
Result<std::string> tuning_text(const std::string& path);

// How the choice was made, for the log.
enum class ChosenBy : std::uint8_t { force, tuning, measuring, price };
struct Selection {
  Choice choice;
  ChosenBy by = ChosenBy::price;
  const Algorithm* runner_up = nullptr;  // by price only: the next one, where it costs little more
  double runner_up_ns = 0;
};

// The parts of the configuration that steer the choice, checked: built once, shared by communicators.
struct Preferences {
  std::array<const Algorithm*, kCollectives> forced{};
  // Null: none.
  const Algorithm* forced_for(Collective collective) const {
    return forced[static_cast<std::size_t>(collective)];
  }
  const Algorithm* forced_sparse = nullptr;  // for streams
  bool forced_dense = false;                 // never streams
  bool forced_bitmaps = false;               // wherever they may serve
  bool reproducible = false;                 // allreduces and reduces fold alike (folds_alike)
  Tuning tuning;
  std::uint64_t tuning_hash = 0;  // of the file's text, from the same look at it
  std::vector<std::string>
      complaints;  // wrong names, an unreadable file: each names variable, value, what is done instead
};
Preferences read_preferences(const Config& config);

// `bytes` are the vector's; of an allgather each rank's.
class Selector {
 public:
  // Borrows topology and preferences.
  Selector(const TopologyView& topology, CostModel model, Abilities abilities,
           const Preferences& preferences);

  // From the next choice on. Measured rules come after those of the preferences.
  void use(const CostModel& model) { model_ = model; }
  void use(std::vector<TuningRule> measured) { measured_ = std::move(measured); }

  // All that can serve the size, in the catalog's order, with the shapes suggested for it; unpriced. Where
  // sums are to be reproducible, of allreduces and reduces those alone that fold alike.
  std::vector<Choice> candidates(Collective collective, std::size_t bytes, bool messages_only) const;
  // Likewise of allreduces by messages alone, for streams, which are not meant to be reproducible.
  std::vector<Choice> candidates_for_streams() const { return all(Collective::allreduce, 0, true); }

  // By price alone, whatever settings, rules and measurements say; without an algorithm where nothing can
  // run.
  Choice cheapest(Collective collective, std::size_t bytes, bool messages_only) const {
    return by_price(collective, bytes, messages_only).choice;
  }

  // Nanoseconds; of streams whose costs on a machine of so many ranks `costs_of` gives, and anything above
  // `give_up_ns` where they take longer than that.
  double price_of(const Choice& choice, std::size_t bytes) const {
    return price_of(*choice.algorithm, choice.shape, bytes);
  }
  double price_of_streams(const Choice& choice, const std::function<StreamCosts(int ranks)>& costs_of,
                          double give_up_ns) const;

  // The same answer on every rank. Fails only when nothing in the catalog can run. `messages_only`: no team
  // verbs, for collectives that may overlap others.
  Result<Selection> select(Collective collective, std::size_t bytes, bool messages_only) const;

 private:
  bool runs(const Algorithm& algorithm, bool messages_only) const;
  std::vector<Choice> all(Collective collective, std::size_t bytes, bool messages_only) const;
  std::optional<Selection> by_rule(Collective collective, std::size_t bytes, bool messages_only) const;
  std::optional<Selection> first_match(const std::vector<TuningRule>& rules, ChosenBy by,
                                       Collective collective, std::size_t bytes, bool messages_only) const;
  // May stop at more than `give_up_ns`.
  double price_of(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                  double give_up_ns = std::numeric_limits<double>::infinity()) const;
  double price_on_idle_network(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                               double give_up_ns) const;
  double price_at_scale(const StandIns& smaller, const Algorithm& algorithm, const Shape& shape,
                        std::size_t bytes, double give_up_ns) const;
  double guess(const Choice& choice, std::size_t bytes) const;
  // The least of their prices. What costs much more than that has some price that is too high as well.
  double price_all(std::vector<Choice>& offered, std::size_t bytes) const;
  Selection by_price(Collective collective, std::size_t bytes, bool messages_only) const;

  const TopologyView& topology_;
  CostModel model_;
  Abilities abilities_;
  const Preferences& preferences_;
  std::vector<TuningRule> measured_;
  std::optional<StandIns> smaller_;
};

// Estimates for the machine at hand until they are measured: shared memory inside a node, the lent messages
// beyond. `domains`: nodes consist of several.
CostModel default_cost_model(LinearCost within_node, MessageCost between_nodes, bool domains);

}  // namespace heddle
