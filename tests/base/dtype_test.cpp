#include "base/dtype.hpp"

#include <gtest/gtest.h>

#include <complex>
#include <set>
#include <string>

#include "base/status.hpp"

namespace heddle {
namespace {

TEST(DType, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(dtype_size(DType::f80), sizeof(long double));
  EXPECT_EQ(dtype_size(DType::c80), sizeof(std::complex<long double>));
  EXPECT_EQ(dtype_size(DType::c32), sizeof(std::complex<float>));
  EXPECT_EQ(dtype_size(DType::bf16), 2U);
  for (int t = 0; t < kDTypeCount; ++t)
    EXPECT_NE(dtype_size(static_cast<DType>(t)), 0U) << t;
}

TEST(DType, NamesDiffer) {
  std::set<std::string> names;
  for (int t = 0; t < kDTypeCount; ++t)
    names.insert(dtype_name(static_cast<DType>(t)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDTypeCount));
  names.clear();
  for (int o = 0; o < kOpCount; ++o)
    names.insert(op_name(static_cast<Op>(o)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kOpCount));
}

TEST(Status, CopiesAreIndependent) {
  Status a(Code::timeout, "late");
  const Status b = a;
  a = Status();
  EXPECT_TRUE(a.ok());
  EXPECT_EQ(b.code(), Code::timeout);
  EXPECT_EQ(b.message(), "late");
}

TEST(Status, SystemErrorNamesTheCallAndErrno) {
  EXPECT_EQ(system_error("open /x", 2).message(), "open /x: No such file or directory (errno 2)");
  EXPECT_EQ(system_error("mmap", 12).code(), Code::out_of_memory);
}

}  // namespace
}  // namespace heddle
