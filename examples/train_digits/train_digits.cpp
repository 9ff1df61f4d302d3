// Trains a small neural network to read digits, on any number of MPI ranks: data-parallel stochastic gradient
// descent as most training jobs do it. Every rank holds the whole network; the first weights are broadcast;
// in each step every rank works on its share of the batch, and the gradients are summed with one
// MPI_Allreduce per layer.
//
//   mpicxx -O3 -std=c++20 train_digits.cpp -o train_digits && mpiexec -n 2 ./train_digits
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "digits.hpp"
#include "network.hpp"
#include "options.hpp"

#ifndef DIGITS_CSV
#define DIGITS_CSV "../data/digits.csv"
#endif

namespace {

using train::Network;

constexpr int kDrawnSamples = 1797;
constexpr float kMomentum = 0.9F;

// The job's collectives, and the time it spends in them.
class Collectives {
 public:
  template <typename T>
  void broadcast(std::vector<T>& data, MPI_Datatype type) {
    const double start = MPI_Wtime();
    MPI_Bcast(data.data(), static_cast<int>(data.size()), type, 0, MPI_COMM_WORLD);
    finish(start);
  }
  template <typename T>
  void sum(std::vector<T>& data, MPI_Datatype type) {
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), type, MPI_SUM, MPI_COMM_WORLD);
    finish(start);
  }
  double seconds() const { return seconds_; }
  long count() const { return count_; }

 private:
  void finish(double start) {
    seconds_ += MPI_Wtime() - start;
    ++count_;
  }
  double seconds_ = 0;
  long count_ = 0;
};

struct Job {
  int rank = 0;
  int ranks = 1;
  train::Options options;
  Collectives collectives;
  std::vector<float> rows;            // all samples, kColumns values each
  std::vector<std::size_t> training;  // which of them to learn from ...
  std::vector<std::size_t> held_out;  // ... and which to test on: one in five

  // This rank's share of the `count` samples from `first` on.
  std::vector<std::size_t> share(const std::vector<std::size_t>& samples, std::size_t first,
                                 std::size_t count) const {
    std::vector<std::size_t> mine;
    for (std::size_t i = static_cast<std::size_t>(rank); i < count; i += static_cast<std::size_t>(ranks))
      mine.push_back(samples[first + i]);
    return mine;
  }
};

// Puts the samples in an order drawn once and for all (files tend to count through the digits) and holds out
// the last fifth of them.
void split(Job& job) {
  const std::size_t samples = job.rows.size() / train::kColumns;
  job.training.resize(samples);
  std::iota(job.training.begin(), job.training.end(), std::size_t{0});
  train::Random random(5);
  train::shuffle(job.training, random);
  job.held_out.assign(job.training.end() - static_cast<std::ptrdiff_t>(samples / 5), job.training.end());
  job.training.resize(samples - samples / 5);
}

// Rank 0 gets the samples and broadcasts them. False if there are none; rank 0 has then said why.
bool load(Job& job) {
  if (job.rank == 0) {
    std::string source = job.options.data;
    const bool search = source.empty();
    if (search) source = DIGITS_CSV;
    std::string problem;
    if (source != "drawn" && !train::read_digits(source, job.rows, problem)) {
      job.rows.clear();
      if (search) {
        source = "drawn";
      } else {
        std::fprintf(stderr, "train_digits: %s; give --data a file of UCI's handwritten digits, or 'drawn'\n",
                     problem.c_str());
      }
    }
    if (source == "drawn") {
      train::draw_digits(kDrawnSamples, job.rows);
      std::printf("data: %d drawn digits%s\n", kDrawnSamples,
                  search ? (" (" + problem + "; --data FILE reads real ones)").c_str() : "");
    } else if (!job.rows.empty()) {
      std::printf("data: %zu digits from %s\n", job.rows.size() / train::kColumns, source.c_str());
    }
  }
  std::vector<long> length(1, static_cast<long>(job.rows.size()));
  job.collectives.broadcast(length, MPI_LONG);
  if (length[0] == 0) return false;
  job.rows.resize(static_cast<std::size_t>(length[0]));
  job.collectives.broadcast(job.rows, MPI_FLOAT);
  split(job);
  return true;
}

// One pass over the training samples in a new random order, the same on all ranks. Returns the mean loss.
double train_epoch(Job& job, Network& network, train::Random& order) {
  train::shuffle(job.training, order);
  double loss = 0;
  const auto batch = static_cast<std::size_t>(job.options.batch);
  for (std::size_t first = 0; first < job.training.size(); first += batch) {
    const std::size_t count = std::min(batch, job.training.size() - first);
    const Network::Score score = network.run(job.rows, job.share(job.training, first, count), true);
    for (train::Layer& layer : network.layers()) {
      job.collectives.sum(layer.gradients, MPI_FLOAT);
      layer.update(static_cast<float>(job.options.rate), kMomentum, static_cast<float>(count));
    }
    std::vector<double> totals = {score.loss, score.correct};
    job.collectives.sum(totals, MPI_DOUBLE);
    loss += totals[0];
  }
  return loss / static_cast<double>(job.training.size());
}

// The share of held-out samples that the network reads rightly.
double test(Job& job, Network& network) {
  std::vector<double> correct(1);
  const auto batch = static_cast<std::size_t>(job.options.batch);
  for (std::size_t first = 0; first < job.held_out.size(); first += batch) {
    const std::size_t count = std::min(batch, job.held_out.size() - first);
    correct[0] += network.run(job.rows, job.share(job.held_out, first, count), false).correct;
  }
  job.collectives.sum(correct, MPI_DOUBLE);
  return job.held_out.empty() ? 0 : correct[0] / static_cast<double>(job.held_out.size());
}

void train_network(Job& job) {
  const auto hidden = static_cast<std::size_t>(job.options.hidden);
  const std::size_t share = static_cast<std::size_t>((job.options.batch + job.ranks - 1) / job.ranks);
  Network network({train::kPixels, hidden, hidden, train::kClasses}, share);
  train::Random order(job.options.seed);
  if (job.rank == 0) {
    train::Random weights(job.options.seed ^ 0x5eed);
    network.initialise(weights);
    std::size_t parameters = 0;
    for (const train::Layer& layer : network.layers())
      parameters += layer.parameters.size();
    std::printf(
        "ranks %d, network 64-%zu-%zu-10, gradients %.0f KiB a step, batch %d, samples %zu + %zu held out\n",
        job.ranks, hidden, hidden, static_cast<double>(parameters) * sizeof(float) / 1024, job.options.batch,
        job.training.size(), job.held_out.size());
  }
  // Both clocks run from here on: the collectives' time is a part of the whole.
  const double start = MPI_Wtime();
  job.collectives = {};
  for (train::Layer& layer : network.layers())
    job.collectives.broadcast(layer.parameters, MPI_FLOAT);

  double loss = 0;
  double accuracy = 0;
  for (int epoch = 1; epoch <= job.options.epochs; ++epoch) {
    loss = train_epoch(job, network, order);
    accuracy = test(job, network);
    if (job.rank == 0) {
      std::printf("epoch %3d  loss %.4f  accuracy %.4f  %6.2f s\n", epoch, loss, accuracy,
                  MPI_Wtime() - start);
      std::fflush(stdout);
    }
  }
  if (job.rank == 0) {
    std::printf("result loss=%.4f accuracy=%.4f seconds=%.3f collective_seconds=%.3f collectives=%ld\n", loss,
                accuracy, MPI_Wtime() - start, job.collectives.seconds(), job.collectives.count());
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Job job;
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
  std::string problem;
  int code = 0;
  if (!train::parse_options(argc, argv, job.options, problem)) {
    if (job.rank == 0) std::fprintf(stderr, "train_digits: %s\n%s", problem.c_str(), train::usage());
    code = 2;
  } else if (job.options.help) {
    if (job.rank == 0) std::fputs(train::usage(), stdout);
  } else if (!load(job)) {
    code = 1;
  } else {
    train_network(job);
  }
  MPI_Finalize();
  return code;
}
