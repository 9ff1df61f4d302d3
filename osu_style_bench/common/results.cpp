#include "common/results.hpp"

namespace heddle::bench {

Summary summarize(const std::vector<ComparedRow>& rows) {
  Summary summary;
  if (rows.empty()) return summary;
  std::vector<double> ratios;
  for (const ComparedRow& row : rows) {
    ratios.push_back(row.ratio);
    if (ratios.size() == 1 || row.ratio < summary.lowest) {
      summary.lowest = row.ratio;
      summary.lowest_bytes = row.bytes;
    }
  }
  summary.geometric_mean = geometric_mean(ratios);
  std::vector<double> means;
  for (std::size_t resample = 0; resample < rows.front().bootstrap.size(); ++resample) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      ratios[i] = rows[i].bootstrap[resample];
    means.push_back(geometric_mean(ratios));
  }
  summary.interval = central_interval(means);
  return summary;
}

}  // namespace heddle::bench
