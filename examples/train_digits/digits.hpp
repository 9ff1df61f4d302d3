// Samples of digits, 8 x 8 grey values each: read from a CSV file, or drawn.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace train {

inline constexpr int kPixels = 64;
inline constexpr int kClasses = 10;
inline constexpr int kColumns = kPixels + 1;  // the last column is the digit

// Random numbers that are the same with every compiler and standard library (SplitMix64; Steele, Lea, Flood
// 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high).
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

inline void shuffle(std::vector<std::size_t>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[random.below(i)]);
}

// Reads rows of kColumns numbers, appended to `rows` with grey values scaled to 0..1. On failure `problem`
// names the file and the line.
inline bool read_digits(const std::string& path, std::vector<float>& rows, std::string& problem) {
  std::ifstream file(path);
  if (!file) {
    problem = "cannot read '" + path + "'";
    return false;
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const char* at = line.c_str();
    for (int column = 0; column < kColumns; ++column) {
      char* end = nullptr;
      const double value = std::strtod(at, &end);
      const bool pixel = column < kPixels;
      const bool good = end != at && value >= 0 && value <= (pixel ? 16 : kClasses - 1) &&
                        (pixel ? *end == ',' : *end == '\0' || *end == '\r');
      if (!good) {
        problem = path + ":" + std::to_string(number) + ": column " + std::to_string(column + 1) +
                  " is not what is wanted: 64 values 0 to 16 and a digit, separated by commas";
        return false;
      }
      rows.push_back(static_cast<float>(pixel ? value / 16 : value));
      at = end + 1;
    }
  }
  if (rows.empty()) problem = path + " holds no samples";
  return !rows.empty();
}

using Point = std::pair<double, double>;  // x to the right, y down, both 0 to 1

// The strokes of each digit, as lines through these points.
inline const std::array<std::vector<Point>, kClasses>& strokes() {
  static const std::array<std::vector<Point>, kClasses> shapes = {{
      {{.5, .05}, {.2, .25}, {.15, .6}, {.3, .9}, {.6, .95}, {.85, .7}, {.85, .3}, {.5, .05}},
      {{.3, .25}, {.55, .05}, {.55, .95}},
      {{.2, .25}, {.45, .05}, {.75, .15}, {.75, .4}, {.2, .95}, {.85, .95}},
      {{.2, .1}, {.7, .08}, {.75, .3}, {.45, .48}, {.8, .65}, {.7, .9}, {.2, .92}},
      {{.6, .05}, {.15, .6}, {.85, .6}, {.65, .3}, {.62, .95}},
      {{.8, .05}, {.25, .05}, {.22, .45}, {.65, .42}, {.82, .68}, {.6, .93}, {.2, .9}},
      {{.65, .05}, {.3, .35}, {.2, .7}, {.45, .95}, {.78, .75}, {.6, .52}, {.25, .65}},
      {{.15, .08}, {.82, .08}, {.5, .5}, {.35, .95}},
      {{.5, .48}, {.25, .28}, {.5, .05}, {.75, .28}, {.5, .48}, {.2, .75}, {.5, .95}, {.8, .75}, {.5, .48}},
      {{.75, .35}, {.45, .5}, {.25, .28}, {.5, .05}, {.75, .2}, {.72, .6}, {.45, .95}},
  }};
  return shapes;
}

inline double distance_to_line(Point p, Point a, Point b) {
  const double dx = b.first - a.first;
  const double dy = b.second - a.second;
  const double along = ((p.first - a.first) * dx + (p.second - a.second) * dy) / (dx * dx + dy * dy);
  const double t = std::clamp(along, 0.0, 1.0);
  return std::hypot(p.first - a.first - t * dx, p.second - a.second - t * dy);
}

// Draws `count` digits, each leaning, placed, scaled and wobbling differently. They stand in where no file of
// real digits is at hand; what is learnt on them says nothing about handwriting.
inline void draw_digits(int count, std::vector<float>& rows) {
  Random random(20240229);
  for (int sample = 0; sample < count; ++sample) {
    const int digit = static_cast<int>(random.below(kClasses));
    std::vector<Point> line = strokes()[static_cast<std::size_t>(digit)];
    const double lean = random.uniform(-0.35, 0.35);
    const double wide = random.uniform(0.6, 1.0);
    const double tall = random.uniform(0.75, 1.05);
    const double right = random.uniform(-0.1, 0.1);
    const double down = random.uniform(-0.08, 0.08);
    const double thick = random.uniform(0.06, 0.11);
    for (Point& p : line) {
      const double x = (p.first - 0.5) * wide + random.uniform(-0.06, 0.06);
      const double y = (p.second - 0.5) * tall + random.uniform(-0.06, 0.06);
      p = {0.5 + x - lean * y + right, 0.5 + y + down};
    }
    for (int pixel = 0; pixel < kPixels; ++pixel) {
      const Point centre{(pixel % 8 + 0.5) / 8, (pixel / 8 + 0.5) / 8};
      double nearest = 2;
      for (std::size_t i = 1; i < line.size(); ++i)
        nearest = std::min(nearest, distance_to_line(centre, line[i - 1], line[i]));
      const double ink = std::exp(-0.5 * nearest * nearest / (thick * thick)) + random.uniform(-0.1, 0.1);
      // Sixteen grey values, as in the data set.
      rows.push_back(static_cast<float>(std::round(std::clamp(ink, 0.0, 1.0) * 16) / 16));
    }
    rows.push_back(static_cast<float>(digit));
  }
}

}  // namespace train
