// A multi-layer perceptron with ReLU between its layers and softmax cross-entropy at its end.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "digits.hpp"

namespace train {

// A fully connected layer. Weights (inputs x outputs, row by row) and then biases lie in one array, and so do
// their gradients, so that a layer is one message.
struct Layer {
  std::size_t inputs;
  std::size_t outputs;
  std::vector<float> parameters;
  std::vector<float> gradients;
  std::vector<float> velocity;

  Layer(std::size_t in, std::size_t out)
      : inputs(in),
        outputs(out),
        parameters((in + 1) * out),
        gradients((in + 1) * out),
        velocity((in + 1) * out) {}

  const float* weights(std::size_t input) const { return parameters.data() + input * outputs; }
  const float* biases() const { return parameters.data() + inputs * outputs; }

  // out[b] = in[b] * weights + biases. Rows of weights are the outer loop: a row stays in the first cache
  // while every sample uses it.
  void forward(const std::vector<float>& in, std::vector<float>& out, std::size_t samples) const {
    for (std::size_t b = 0; b < samples; ++b)
      std::copy_n(biases(), outputs, out.data() + b * outputs);
    for (std::size_t i = 0; i < inputs; ++i) {
      for (std::size_t b = 0; b < samples; ++b) {
        const float x = in[b * inputs + i];
        if (x != 0.0F) add_scaled(out.data() + b * outputs, weights(i), x);
      }
    }
  }

  // Adds to `gradients`; in_error[b] becomes the error at the inputs, unless it is null.
  void backward(const std::vector<float>& in, const std::vector<float>& out_error,
                std::vector<float>* in_error, std::size_t samples) {
    for (std::size_t b = 0; b < samples; ++b)
      add_scaled(gradients.data() + inputs * outputs, out_error.data() + b * outputs, 1.0F);
    for (std::size_t i = 0; i < inputs; ++i) {
      for (std::size_t b = 0; b < samples; ++b) {
        const float x = in[b * inputs + i];
        if (in_error != nullptr) {
          // A neuron at rest (ReLU) passes no error on.
          (*in_error)[b * inputs + i] = x > 0 ? dot(weights(i), out_error.data() + b * outputs) : 0.0F;
        }
        if (x != 0.0F) add_scaled(gradients.data() + i * outputs, out_error.data() + b * outputs, x);
      }
    }
  }

  // A step of gradient descent with momentum, with gradients divided by `samples`; clears the gradients.
  void update(float rate, float momentum, float samples) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      velocity[i] = momentum * velocity[i] - rate / samples * gradients[i];
      parameters[i] += velocity[i];
      gradients[i] = 0;
    }
  }

 private:
  void add_scaled(float* to, const float* from, float factor) const {
    for (std::size_t j = 0; j < outputs; ++j)
      to[j] += factor * from[j];
  }
  // Sums in eight lanes, which a compiler may vectorise without reordering anything.
  float dot(const float* a, const float* b) const {
    float lanes[8] = {};
    std::size_t j = 0;
    for (; j + 8 <= outputs; j += 8)
      for (std::size_t lane = 0; lane < 8; ++lane)
        lanes[lane] += a[j + lane] * b[j + lane];
    float sum = 0;
    for (; j < outputs; ++j)
      sum += a[j] * b[j];
    for (const float lane : lanes)
      sum += lane;
    return sum;
  }
};

class Network {
 public:
  // `widest` is the largest number of samples that one call will bring.
  Network(const std::vector<std::size_t>& widths, std::size_t widest) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
      layers_.emplace_back(widths[i], widths[i + 1]);
    for (const std::size_t width : widths) {
      values_.emplace_back(width * widest);
      errors_.emplace_back(width * widest);
    }
  }

  std::vector<Layer>& layers() { return layers_; }

  // He's initialisation, uniform.
  void initialise(Random& random) {
    for (Layer& layer : layers_) {
      const double bound = std::sqrt(6.0 / static_cast<double>(layer.inputs));
      for (std::size_t i = 0; i < layer.inputs * layer.outputs; ++i)
        layer.parameters[i] = static_cast<float>(random.uniform(-bound, bound));
    }
  }

  struct Score {
    double loss = 0;     // summed over the samples
    double correct = 0;  // how many samples were classified rightly
  };

  // Runs the samples `which` of `rows` through; adds their gradients if `learn`.
  Score run(const std::vector<float>& rows, const std::vector<std::size_t>& which, bool learn) {
    const std::size_t samples = which.size();
    for (std::size_t b = 0; b < samples; ++b)
      std::copy_n(rows.data() + which[b] * kColumns, kPixels, values_[0].data() + b * kPixels);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].forward(values_[i], values_[i + 1], samples);
      if (i + 1 == layers_.size()) break;
      for (std::size_t k = 0; k < samples * layers_[i].outputs; ++k)
        values_[i + 1][k] = std::max(values_[i + 1][k], 0.0F);
    }
    Score score;
    for (std::size_t b = 0; b < samples; ++b)
      classify(rows, which[b], b, score);
    if (learn) {
      for (std::size_t i = layers_.size(); i-- > 0;)
        layers_[i].backward(values_[i], errors_[i + 1], i > 0 ? &errors_[i] : nullptr, samples);
    }
    return score;
  }

 private:
  // Softmax and cross-entropy of sample `b` of the batch; leaves the error at the last layer's outputs.
  void classify(const std::vector<float>& rows, std::size_t row, std::size_t b, Score& score) {
    const float* out = values_.back().data() + b * kClasses;
    float* error = errors_.back().data() + b * kClasses;
    const auto label = static_cast<std::size_t>(rows[row * kColumns + kPixels]);
    const float* best = std::max_element(out, out + kClasses);
    double sum = 0;
    for (int k = 0; k < kClasses; ++k)
      sum += std::exp(static_cast<double>(out[k] - *best));
    for (int k = 0; k < kClasses; ++k)
      error[k] = static_cast<float>(std::exp(static_cast<double>(out[k] - *best)) / sum);
    error[label] -= 1;
    score.loss += std::log(sum) - static_cast<double>(out[label] - *best);
    score.correct += static_cast<std::size_t>(best - out) == label ? 1 : 0;
  }

  std::vector<Layer> layers_;
  std::vector<std::vector<float>> values_;  // at the inputs of each layer, and the outputs of the last
  std::vector<std::vector<float>> errors_;  // the loss's derivative by those
};

}  // namespace train
