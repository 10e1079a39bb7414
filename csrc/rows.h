// Operations with numbers of a row: means over its elements, and what is done with them.
#pragma once

#include "program.h"
#include "vector.h"

namespace OG_ISA {

// A vector of which the first n elements are there, and the others zero.
template <class T> OG_INLINE Vec<T> first_of(Vec<T> v, int64_t n) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm512_maskz_mov_ps(static_cast<__mmask16>((1u << n) - 1), (__m512)v);
  else
    return (Vec<T>)_mm512_maskz_mov_pd(static_cast<__mmask8>((1u << n) - 1), (__m512d)v);
#elif OG_AVX2
  return (Vec<T>)((__m256i)v & first_lanes<T>(n));
#else
  T lanes[kLanes<T>] = {};
  store_part(lanes, v, n);
  return load(lanes);
#endif
}

template <class T> OG_INLINE Vec<T> some(const T* a, int64_t i, int64_t n) {
  return n == kLanes<T> ? load(a + i) : load_part(a + i, n);
}

// d = the mean over each row of what of(row)(i, n) is: i counts elements in steps of a vector, n of
// which are there. Rows do not wait for each other, so that their sums overlap.
template <class T, class F> OG_INLINE void row_means(T* d, int64_t rows, int64_t width, F of) {
  constexpr int64_t L = kLanes<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const auto value = of(r);
    Vec<T> sums{};
    int64_t i = 0;
    for (; i + L <= width; i += L) sums += value(i, L);
    if (i < width) sums += first_of<T>(value(i, width - i), width - i);
    d[r] = lane_sum<T>(sums) / static_cast<T>(width);
  }
}

template <class T, class F> OG_INLINE void each_of_rows(T* d, int64_t rows, int64_t width, F of) {
  constexpr int64_t L = kLanes<T>;
  for (int64_t r = 0; r < rows; ++r, d += width) {
    const auto value = of(r);
    int64_t i = 0;
    for (; i + L <= width; i += L) store(d + i, value(i, L));
    if (i < width) store_part(d + i, value(i, width - i), width - i);
  }
}

// One operation on `rows` rows of a given width, see onegate/ops.py.
template <class T>
void with_row_numbers(Op op, T* d, const T* a, const T* b, const T* c, int64_t rows,
                      int64_t width) {
  switch (op) {
    case Op::mean:
      return row_means(d, rows, width, [=](int64_t r) {
        return [x = a + r * width](int64_t i, int64_t n) { return some(x, i, n); };
      });
    case Op::variance:
      return row_means(d, rows, width, [=](int64_t r) {
        return [x = a + r * width, m = b[r]](int64_t i, int64_t n) {
          const Vec<T> apart = some(x, i, n) - m;
          return apart * apart;
        };
      });
    case Op::mean_product:
      return row_means(d, rows, width, [=](int64_t r) {
        return [x = a + r * width, y = b + r * width](int64_t i, int64_t n) {
          return some(x, i, n) * some(y, i, n);
        };
      });
    case Op::scaled:
      return each_of_rows(d, rows, width, [=](int64_t r) {
        return [x = a + r * width, s = b[r]](int64_t i, int64_t n) { return some(x, i, n) * s; };
      });
    case Op::normed:
      return each_of_rows(d, rows, width, [=](int64_t r) {
        return [x = a + r * width, m = b[r], s = c[r]](int64_t i, int64_t n) {
          return (some(x, i, n) - m) * s;
        };
      });
    default:  // minus_scaled
      return each_of_rows(d, rows, width, [=](int64_t r) {
        return [x = a + r * width, y = b + r * width, q = c[r]](int64_t i, int64_t n) {
          return some(x, i, n) - rounded(some(y, i, n) * q);
        };
      });
  }
}

}  // namespace OG_ISA
