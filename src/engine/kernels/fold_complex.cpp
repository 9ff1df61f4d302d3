// Products of complex numbers of two f32 or two f64.
//
// A product is C's: where the formula of four multiplications gives NaN in both parts although a factor or a
// product of parts is infinite, the infinity is recovered (C11 annex G), as in an MPI library written in C.
// Vectors take the formula, and numbers that it makes NaN, which are few, are looked at one by one.
#include <cmath>
#include <complex>

#include "engine/kernels/families.hpp"
#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/fold_complex.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/float_ops_inl.hpp"
#include "engine/kernels/fold_inl.hpp"

#ifndef HEDDLE_KERNELS_RECOVERED
#define HEDDLE_KERNELS_RECOVERED
namespace heddle::kernels {
namespace {

// Of `parts` / 2 numbers, next to each other as in memory. What stays NaN keeps the formula's, whose bits are
// those of every instruction set, compiler and library.
template <typename T>
void recover(const T* a, const T* b, T* products, std::size_t parts) {
  for (std::size_t re = 0; re < parts; re += 2) {
    const std::size_t im = re + 1;
    if (!std::isnan(products[re]) || !std::isnan(products[im])) continue;
    const std::complex<T> product = std::complex<T>(a[re], a[im]) * std::complex<T>(b[re], b[im]);
    if (std::isnan(product.real()) && std::isnan(product.imag())) continue;
    products[re] = product.real();
    products[im] = product.imag();
  }
}

}  // namespace
}  // namespace heddle::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // one lane holds half a number

template <typename T>
void fold_numbers(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  if (n_inputs == 1) return fold_parts<Plain<T>, FloatProd, 2>(out, out2, inputs, n_inputs, count);  // a copy
  const hn::ScalableTag<T> d;
  const auto times = [d](T a, T b) { return FloatProd::apply(d, hn::Set(d, a), hn::Set(d, b)); };
  for (std::size_t at = 0; at < count * 2 * sizeof(T); at += 2 * sizeof(T)) {
    T a[2];
    std::memcpy(a, static_cast<const std::uint8_t*>(inputs[0]) + at, sizeof(a));
    for (unsigned k = 1; k < n_inputs; ++k) {
      T b[2];
      std::memcpy(b, static_cast<const std::uint8_t*>(inputs[k]) + at, sizeof(b));
      T product[2] = {hn::GetLane(FloatSum::apply(d, times(a[0], b[0]), hn::Neg(times(a[1], b[1])))),
                      hn::GetLane(FloatSum::apply(d, times(a[0], b[1]), times(a[1], b[0])))};
      recover(a, b, product, 2);
      std::memcpy(a, product, sizeof(a));
    }
    std::memcpy(static_cast<std::uint8_t*>(out) + at, a, sizeof(a));
    if (out2 != nullptr) std::memcpy(static_cast<std::uint8_t*>(out2) + at, a, sizeof(a));
  }
}

#else

template <typename T>
struct PartOfTwo : Plain<T> {};
template <typename T>
inline constexpr std::size_t kWholeBytes<PartOfTwo<T> > = 2 * sizeof(T);

// (re, im) * (re', im') = (re re' - im im', re im' + im re'), by vectors of parts:
//   (re, re) * (re', im') + (-, +) (im, im) * (im', re')
struct ComplexProd {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    const V by_re = FloatProd::apply(d, hn::DupEven(a), b);
    const V by_im = FloatProd::apply(d, hn::DupOdd(a), hn::Reverse2(d, b));
    const V product = FloatSum::apply(d, by_re, hn::Xor(by_im, hn::OddEven(hn::Zero(d), hn::SignBit(d))));
    if (HWY_LIKELY(hn::AllFalse(d, hn::IsNaN(product)))) return product;
    return recovered(d, a, b, product);
  }

 private:
  template <class D, class V>
  static HWY_NOINLINE V recovered(D d, V a, V b, V product) {
    HWY_ALIGN hn::TFromD<D> parts[3][hn::MaxLanes(d)];
    hn::Store(a, d, parts[0]);
    hn::Store(b, d, parts[1]);
    hn::Store(product, d, parts[2]);
    recover(parts[0], parts[1], parts[2], hn::MaxLanes(d));
    return hn::Load(d, parts[2]);
  }
};

template <typename T>
void fold_numbers(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  fold_parts<PartOfTwo<T>, ComplexProd, 2>(out, out2, inputs, n_inputs, count);
}

#endif

FoldFn complex_product(DType type) {
  return type == DType::c32 ? &fold_numbers<float> : &fold_numbers<double>;
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels {

HWY_EXPORT(complex_product);
FoldFn fold_complex(DType type, Op op) {
  const bool ours = (type == DType::c32 || type == DType::c64) && op == Op::prod;
  return ours ? HWY_DYNAMIC_DISPATCH(complex_product)(type) : nullptr;
}

}  // namespace heddle::kernels
#endif
