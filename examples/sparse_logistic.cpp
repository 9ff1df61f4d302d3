// Sparse logistic regression over ranks: is a window of words from one of the GNU General Public Licences, or
// from another licence? The texts are those that every Debian system has in /usr/share/common-licenses. Words
// and pairs of words are hashed into millions of features, of which a minibatch has a few thousand: its
// gradient is sparse, and heddle_sparse_allreduce sums it over the ranks. With --dense the same job sums the
// whole vector instead.
//
//   export PKG_CONFIG_PATH=$PWD/dist/lib/pkgconfig
//   FLAGS="$(pkg-config --cflags --libs heddle) -Wl,-rpath,$PWD/dist/lib"
//   mpicxx.mpich -std=c++20 -O2 examples/sparse_logistic.cpp $FLAGS -o sparse_logistic
//   mpiexec.mpich -n 2 ./sparse_logistic
//
// Without MPI compile with g++, and start every rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.
#include <heddle/heddle_sparse.h>
#include <heddle/heddle.hpp>
#if __has_include(<mpi.h>)
#include <heddle/heddle_mpi.h>
#define WITH_MPI 1
#endif

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using heddle::api::check;
using heddle::api::Comm;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string texts = "/usr/share/common-licenses";
  bool dense = false;
  bool help = false;
  int epochs = 5;
  int bits = 22;    // 2^bits features
  int batch = 256;  // windows in a step, of all ranks together
};

constexpr const char* kUsage =
    "usage: sparse_logistic [--dense] [--bits N] [--epochs N] [--batch N] [--texts FOLDER]\n"
    "  --dense         sum gradients as whole vectors (default: as sparse ones)\n"
    "  --bits N        2^N features (default 22)\n"
    "  --epochs N      passes over the training windows (default 5)\n"
    "  --batch N       windows in a step over all ranks (default 256)\n"
    "  --texts FOLDER  licences to learn from (default /usr/share/common-licenses)\n";

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, int*> numbers = {
      {"--bits", &options.bits}, {"--epochs", &options.epochs}, {"--batch", &options.batch}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (name == "--dense") {
      options.dense = true;
    } else if (name == "--texts" && i + 1 < argc) {
      options.texts = argv[++i];
    } else if (numbers.count(name) != 0 && i + 1 < argc) {
      *numbers.at(name) = std::clamp(std::atoi(argv[++i]), 1, name == "--bits" ? 30 : 1 << 30);
    } else {
      throw std::invalid_argument(name + ": no such option, or its value is missing; see --help");
    }
  }
  return options;
}

// ---- Texts

struct Window {
  std::vector<std::uint32_t> features;
  bool gnu = false;
};

struct Corpus {
  std::vector<Window> training, held_out;
};

std::vector<std::string> words_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string text; file >> text;) {
    std::string word;
    for (const unsigned char c : text)
      if (std::isalnum(c) != 0) word += static_cast<char>(std::tolower(c));
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// FNV-1a.
std::uint32_t feature(const std::string& text, int bits) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return static_cast<std::uint32_t>(hash >> (64 - bits));
}

// Windows do not reach over the ends of blocks, and every fifth block is held out.
void cut(const std::vector<std::string>& words, bool gnu, int bits, Corpus& corpus) {
  constexpr std::size_t kBlock = 128, kWindow = 16, kStride = 4;
  for (std::size_t block = 0; block < words.size(); block += kBlock) {
    const std::size_t end = std::min(block + kBlock, words.size());
    for (std::size_t first = block; first + kWindow <= end; first += kStride) {
      Window window{{feature("", bits)}, gnu};  // the first feature is the bias
      for (std::size_t i = first; i < first + kWindow; ++i) {
        window.features.push_back(feature(words[i], bits));
        if (i > first) window.features.push_back(feature(words[i - 1] + " " + words[i], bits));
      }
      (block / kBlock % 5 == 4 ? corpus.held_out : corpus.training).push_back(std::move(window));
    }
  }
}

Corpus read_texts(const Options& options) {
  std::set<std::filesystem::path> files;  // in the same order on all ranks
  for (const auto& entry : std::filesystem::directory_iterator(options.texts))
    if (entry.is_regular_file() && !entry.is_symlink()) files.insert(entry.path());
  Corpus corpus;
  for (const auto& file : files)
    cut(words_of(file), file.filename().string().find("GPL") != std::string::npos, options.bits, corpus);
  if (corpus.held_out.empty()) throw std::runtime_error("not enough text in " + options.texts);
  return corpus;
}

// ---- Gradients

// A sparse vector with arrays that heddle may ask to grow.
struct Gradient {
  explicit Gradient(std::uint64_t dimension) {
    const auto grow = [](heddle_sparse* self, std::size_t entries) {
      static_cast<Gradient*>(self->context)->resize(entries);
      return 0;
    };
    view = {dimension, 0, HEDDLE_INDEX32, HEDDLE_FLOAT32, nullptr, nullptr, 0, grow, this};
  }
  Gradient(const Gradient&) = delete;
  void resize(std::size_t entries) {
    indices.resize(entries);
    values.resize(entries);
    view.indices = indices.data();
    view.values = values.data();
    view.capacity = entries;
  }

  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  heddle_sparse view{};
};

struct Epoch {
  double loss = 0, accuracy = 0, seconds = 0;
  double sum_seconds = 0;  // in sorting and summing gradients
  double density = 0;      // of the sums, on average
  double bytes_sent = 0;   // by this rank
};

class Trainer {
 public:
  Trainer(const Options& options, const Corpus& corpus, Comm& comm)
      : options_(options), corpus_(corpus), comm_(comm) {}

  Epoch epoch(int number) {
    Epoch epoch;
    const Clock::time_point start = Clock::now();
    std::vector<std::size_t> order(corpus_.training.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(number)));  // alike on all
    const auto batch = static_cast<std::size_t>(options_.batch);
    double steps = 0;
    for (std::size_t first = 0; first < order.size(); first += batch, ++steps) {
      const std::size_t end = std::min(first + batch, order.size());
      collect(order, first, end, epoch);
      const Clock::time_point before = Clock::now();
      options_.dense ? sum_dense(epoch) : sum_sparse(epoch);
      epoch.sum_seconds += std::chrono::duration<double>(Clock::now() - before).count();
      apply(epoch);
    }
    epoch.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    epoch.density /= steps * static_cast<double>(dimension_);
    evaluate(epoch);
    return epoch;
  }

 private:
  double probability(const Window& window) const {
    double score = 0;
    for (const std::uint32_t f : window.features)
      score += weights_[f];
    return 1 / (1 + std::exp(-score));
  }

  // The gradient of this rank's share of a minibatch: entries in any order, features may occur many times.
  void collect(const std::vector<std::size_t>& order, std::size_t first, std::size_t end, Epoch& epoch) {
    mine_.indices.clear();
    mine_.values.clear();
    for (std::size_t i = first + rank_; i < end; i += size_) {
      const Window& window = corpus_.training[order[i]];
      const double p = probability(window);
      epoch.loss -= std::log(std::max(window.gnu ? p : 1 - p, 1e-12));
      const double slope = (p - (window.gnu ? 1 : 0)) / static_cast<double>(end - first);
      mine_.indices.insert(mine_.indices.end(), window.features.begin(), window.features.end());
      mine_.values.resize(mine_.indices.size(), static_cast<float>(slope));
    }
  }

  void sum_sparse(Epoch& epoch) {
    mine_.resize(mine_.indices.size());
    mine_.view.count = mine_.indices.size();
    check(heddle_sparse_sort(&mine_.view));  // adds up what occurs many times
    check(heddle_sparse_allreduce(&mine_.view, &sum_.view, HEDDLE_SUM, comm_.handle()));
    heddle_sparse_stats stats;
    check(heddle_sparse_get_stats(comm_.handle(), &stats));
    epoch.bytes_sent += static_cast<double>(stats.bytes_sent);
  }

  // The same with the whole vector. What is sent is an estimate: of a reduce-scatter and an allgather.
  void sum_dense(Epoch& epoch) {
    std::fill(dense_.begin(), dense_.end(), 0.0F);
    for (std::size_t i = 0; i < mine_.indices.size(); ++i)
      dense_[mine_.indices[i]] += mine_.values[i];
    comm_.allreduce_in_place(std::span(dense_));
    epoch.bytes_sent +=
        (2 - 2.0 / static_cast<double>(size_)) * static_cast<double>(dense_.size() * sizeof(float));
  }

  void apply(Epoch& epoch) {
    for (std::size_t i = 0; i < sum_.view.count; ++i)
      step(sum_.indices[i], sum_.values[i], epoch);
    for (std::size_t f = 0; f < dense_.size(); ++f)
      if (dense_[f] != 0) step(f, dense_[f], epoch);
  }

  // AdaGrad (Duchi, Hazan, Singer, JMLR 12, 2011): features that are rare take large steps.
  void step(std::size_t f, float gradient, Epoch& epoch) {
    ++epoch.density;
    constexpr float kRate = 0.1F;
    squares_[f] += gradient * gradient;
    weights_[f] -= kRate * gradient / (std::sqrt(squares_[f]) + 1e-8F);
  }

  // Each rank looks at its share; loss and hits are summed like everything else.
  void evaluate(Epoch& epoch) {
    std::vector<double> sums = {epoch.loss, 0};
    for (std::size_t i = rank_; i < corpus_.held_out.size(); i += size_)
      if ((probability(corpus_.held_out[i]) > 0.5) == corpus_.held_out[i].gnu) ++sums[1];
    comm_.allreduce_in_place(std::span(sums));
    epoch.loss = sums[0] / static_cast<double>(corpus_.training.size());
    epoch.accuracy = sums[1] / static_cast<double>(corpus_.held_out.size());
  }

  const Options& options_;
  const Corpus& corpus_;
  Comm& comm_;
  // Of the windows of a minibatch this rank has number rank_, and every size_-th from there on.
  const std::size_t rank_ = static_cast<std::size_t>(comm_.rank());
  const std::size_t size_ = static_cast<std::size_t>(comm_.size());
  const std::size_t dimension_ = std::size_t{1} << options_.bits;
  std::vector<float> weights_ = std::vector<float>(dimension_);
  std::vector<float> squares_ = weights_;  // of the gradients so far
  std::vector<float> dense_ = options_.dense ? weights_ : std::vector<float>();
  Gradient mine_{dimension_}, sum_{dimension_};
};

void train(const Options& options, Comm comm) {
  const Corpus corpus = read_texts(options);
  const bool leads = comm.rank() == 0;
  if (leads)
    std::printf("ranks %d, features %d, windows %zu + %zu held out, %s gradients\n%s\n", comm.size(),
                1 << options.bits, corpus.training.size(), corpus.held_out.size(),
                options.dense ? "dense" : "sparse",
                "epoch    loss  accuracy  seconds  in sums  density %    MB sent");
  Trainer trainer(options, corpus, comm);
  for (int number = 1; number <= options.epochs; ++number) {
    const Epoch epoch = trainer.epoch(number);
    if (leads)
      std::printf("%5d  %.4f    %.4f  %7.3f  %7.3f  %9.4f  %9.3f\n", number, epoch.loss, epoch.accuracy,
                  epoch.seconds, epoch.sum_seconds, 100 * epoch.density, epoch.bytes_sent / 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  if (options.help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
#ifdef WITH_MPI
  if (std::getenv("RANK") == nullptr) {
    heddle_comm_t comm = nullptr;
    MPI_Init(&argc, &argv);
    check(heddle_comm_create_mpi(MPI_COMM_WORLD, &comm));
    train(options, Comm(comm));
    MPI_Finalize();
    return 0;
  }
#endif
  train(options, Comm::from_environment());
} catch (const std::exception& error) {
  std::fprintf(stderr, "sparse_logistic: %s\n", error.what());
  return 1;
}
