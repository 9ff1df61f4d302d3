// Sparse logistic regression over ranks: is a window of words from one of the GNU General Public Licences, or from
// another licence? The texts are those that every Debian system has in /usr/share/common-licenses. Words and pairs of
// words are hashed into millions of features, of which a minibatch has a few thousand: its gradient is sparse, and
// heddle_sparse_allreduce sums it over the ranks. With --dense the same job sums the whole vector instead.
//
//   mpicxx -std=c++20 -O2 sparse_logistic.cpp $(pkg-config --cflags --libs heddle) -o sparse_logistic
//   mpiexec -n 2 ./sparse_logistic
//
// or without MPI:
//
//   g++ -std=c++20 -O2 sparse_logistic.cpp $(pkg-config --cflags --libs heddle) -o sparse_logistic
//   for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./sparse_logistic & done; wait
#include <heddle/heddle_sparse.h>
#if __has_include(<mpi.h>)
#include <heddle/heddle_mpi.h>
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
#include <string>
#include <vector>

namespace {

struct Options {
  std::string texts = "/usr/share/common-licenses";
  int bits = 22;  // 2^bits features
  int epochs = 5;
  int batch = 256;  // windows in a step, of all ranks together
  bool dense = false;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "sparse_logistic: %s\n", why.c_str());
  std::exit(1);
}

void check(const char* what, heddle_status status) {
  if (status != HEDDLE_OK)
    fail(std::string(what) + ": " + heddle_status_name(status) + ": " + heddle_last_error());
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, int*> numbers = {
      {"--bits", &options.bits}, {"--epochs", &options.epochs}, {"--batch", &options.batch}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--dense") {
      options.dense = true;
    } else if (name == "--texts" && i + 1 < argc) {
      options.texts = argv[++i];
    } else if (numbers.count(name) != 0 && i + 1 < argc) {
      *numbers.at(name) = std::max(1, std::stoi(argv[++i]));
    } else {
      fail("usage: sparse_logistic [--dense] [--bits N] [--epochs N] [--batch N] [--texts FOLDER]");
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

// Windows do not reach over the ends of blocks, and every fifth block is held out: no held-out sentence was trained on.
void cut(const std::vector<std::string>& words, bool gnu, int bits, Corpus& corpus) {
  constexpr std::size_t kBlock = 128;
  constexpr std::size_t kWindow = 16;
  constexpr std::size_t kStride = 4;
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
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.texts, error))
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Corpus corpus;
  for (const auto& file : files)
    cut(words_of(file), file.filename().string().find("GPL") != std::string::npos, options.bits, corpus);
  if (corpus.training.empty() || corpus.held_out.empty()) fail("no texts in " + options.texts);
  return corpus;
}

// ---- Gradients

// A sparse vector with arrays that heddle may ask to grow.
struct Gradient {
  explicit Gradient(std::uint64_t dimension) {
    view.dimension = dimension;
    view.index_type = HEDDLE_INDEX32;
    view.value_type = HEDDLE_FLOAT32;
    view.context = this;
    view.grow = [](heddle_sparse* self, std::size_t entries) {
      static_cast<Gradient*>(self->context)->resize(entries);
      return 0;
    };
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
  double loss = 0;
  double accuracy = 0;
  double seconds = 0;
  double sum_seconds = 0;  // in heddle
  double density = 0;      // of the summed gradients, on average
  double bytes_sent = 0;   // by this rank
};

class Trainer {
 public:
  Trainer(const Options& options, const Corpus& corpus, heddle_comm_t comm)
      : options_(options),
        corpus_(corpus),
        comm_(comm),
        dimension_(std::uint64_t{1} << options.bits),
        weights_(dimension_),
        squares_(dimension_),
        mine_(dimension_),
        sum_(dimension_),
        dense_(options.dense ? dimension_ : 0) {
    int rank = 0;
    int size = 0;
    check("heddle_comm_rank", heddle_comm_rank(comm, &rank));
    check("heddle_comm_size", heddle_comm_size(comm, &size));
    rank_ = static_cast<std::size_t>(rank);
    size_ = static_cast<std::size_t>(size);
  }

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }

  Epoch epoch(int number) {
    Epoch epoch;
    const double start = now();
    std::vector<std::size_t> order(corpus_.training.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(),
                 std::mt19937(static_cast<unsigned>(number)));  // alike on all ranks
    const auto batch = static_cast<std::size_t>(options_.batch);
    double steps = 0;
    for (std::size_t first = 0; first < order.size(); first += batch, ++steps) {
      const std::size_t end = std::min(first + batch, order.size());
      collect(order, first, end, epoch);
      const double before = now();
      options_.dense ? sum_dense(epoch) : sum_sparse(epoch);
      epoch.sum_seconds += now() - before;
      apply(epoch);
    }
    epoch.seconds = now() - start;
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
    check("heddle_sparse_sort", heddle_sparse_sort(&mine_.view));  // adds up what occurs many times
    check("heddle_sparse_allreduce", heddle_sparse_allreduce(&mine_.view, &sum_.view, HEDDLE_SUM, comm_));
    heddle_sparse_stats stats;
    check("heddle_sparse_get_stats", heddle_sparse_get_stats(comm_, &stats));
    epoch.bytes_sent += static_cast<double>(stats.bytes_sent);
  }

  // The same with the whole vector. What is sent is an estimate: of a reduce-scatter and an allgather.
  void sum_dense(Epoch& epoch) {
    std::fill(dense_.begin(), dense_.end(), 0.0F);
    for (std::size_t i = 0; i < mine_.indices.size(); ++i)
      dense_[mine_.indices[i]] += mine_.values[i];
    check("heddle_allreduce",
          heddle_allreduce(HEDDLE_IN_PLACE, dense_.data(), dense_.size(), HEDDLE_FLOAT32, HEDDLE_SUM, comm_));
    epoch.bytes_sent += 2.0 * static_cast<double>((size_ - 1) * dense_.size() * sizeof(float) / size_);
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
    double sums[2] = {epoch.loss, 0};
    for (std::size_t i = rank_; i < corpus_.held_out.size(); i += size_)
      if ((probability(corpus_.held_out[i]) > 0.5) == corpus_.held_out[i].gnu) ++sums[1];
    check("heddle_allreduce", heddle_allreduce(HEDDLE_IN_PLACE, sums, 2, HEDDLE_FLOAT64, HEDDLE_SUM, comm_));
    epoch.loss = sums[0] / static_cast<double>(corpus_.training.size());
    epoch.accuracy = sums[1] / static_cast<double>(corpus_.held_out.size());
  }

  const Options& options_;
  const Corpus& corpus_;
  heddle_comm_t comm_;
  std::uint64_t dimension_;
  std::size_t rank_ = 0;  // of the windows of a minibatch this rank has number rank_,
  std::size_t size_ = 1;  // and every size_-th from there on
  std::vector<float> weights_;
  std::vector<float> squares_;  // of the gradients so far
  Gradient mine_;
  Gradient sum_;
  std::vector<float> dense_;
};

void train(const Options& options, heddle_comm_t comm) {
  const Corpus corpus = read_texts(options);
  Trainer trainer(options, corpus, comm);
  if (trainer.rank() == 0)
    std::printf(
        "ranks %zu, features %d, windows %zu + %zu held out, batch %d, %s gradients\n"
        "epoch    loss  accuracy  seconds  in sums  density %%    MB sent\n",
        trainer.size(), 1 << options.bits, corpus.training.size(), corpus.held_out.size(), options.batch,
        options.dense ? "dense" : "sparse");
  for (int number = 1; number <= options.epochs; ++number) {
    const Epoch epoch = trainer.epoch(number);
    if (trainer.rank() == 0)
      std::printf("%5d  %.4f    %.4f  %7.3f  %7.3f  %9.4f  %9.3f\n", number, epoch.loss, epoch.accuracy,
                  epoch.seconds, epoch.sum_seconds, 100 * epoch.density, epoch.bytes_sent / 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  heddle_comm_t comm = nullptr;
#ifdef HEDDLE_HEDDLE_MPI_H
  const bool with_mpi = std::getenv("RANK") == nullptr;
  if (with_mpi) {
    MPI_Init(&argc, &argv);
    check("heddle_comm_create_mpi", heddle_comm_create_mpi(MPI_COMM_WORLD, &comm));
  }
#endif
  if (comm == nullptr) check("heddle_comm_create_env", heddle_comm_create_env(&comm));
  train(options, comm);
  check("heddle_comm_destroy", heddle_comm_destroy(comm));
#ifdef HEDDLE_HEDDLE_MPI_H
  if (with_mpi) MPI_Finalize();
#endif
  return 0;
}
