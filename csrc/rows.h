// Operations over all elements of a row: means and norms.
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

// Adds up v(i, n), and w(i, n) beside it, over a row: i counts elements in steps of a vector, n of
// which are there.
template <class T, class V, class W>
OG_INLINE void row_sums(int64_t width, T& first, T& second, V v, W w) {
  constexpr int64_t L = kLanes<T>;
  Vec<T> sums{}, others{};
  int64_t i = 0;
  for (; i + L <= width; i += L) {
    sums += v(i, L);
    others += w(i, L);
  }
  if (i < width) {
    sums += first_of<T>(v(i, width - i), width - i);
    others += first_of<T>(w(i, width - i), width - i);
  }
  first = lane_sum<T>(sums) / static_cast<T>(width);
  second = lane_sum<T>(others) / static_cast<T>(width);
}

template <class T, class V> OG_INLINE T row_mean_of(int64_t width, V v) {
  constexpr int64_t L = kLanes<T>;
  Vec<T> sums{};
  int64_t i = 0;
  for (; i + L <= width; i += L) sums += v(i, L);
  if (i < width) sums += first_of<T>(v(i, width - i), width - i);
  return lane_sum<T>(sums) / static_cast<T>(width);
}

template <class T> OG_INLINE Vec<T> some(const T* a, int64_t i, int64_t n) {
  return n == kLanes<T> ? load(a + i) : load_part(a + i, n);
}

template <class T> OG_INLINE T row_mean(const T* a, int64_t width) {
  return row_mean_of<T>(width, [=](int64_t i, int64_t n) { return some(a, i, n); });
}

// The mean of (a - centre)^2.
template <class T> OG_INLINE T row_square(const T* a, T centre, int64_t width) {
  return row_mean_of<T>(width, [=](int64_t i, int64_t n) {
    const Vec<T> x = some(a, i, n) - centre;
    return x * x;
  });
}

template <class T, class F> OG_INLINE void each_of_row(T* d, int64_t width, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= width; i += kLanes<T>) store(d + i, f(i, kLanes<T>));
  if (i < width) store_part(d + i, f(i, width - i), width - i);
}

// d = a normed, with the mean (0 for RMS) and the reciprocal deviation.
template <class T> OG_INLINE void norm(T* d, const T* a, T centre, T eps, int64_t width) {
  const T scale = T{1} / std::sqrt(row_square(a, centre, width) + eps);
  each_of_row(d, width,
              [=](int64_t i, int64_t n) { return (some(a, i, n) - centre) * scale; });
}

// d = what the gradient g at the norm y of a gives a: scale (g - mean g - y mean(g y)); the mean of
// g is left out for RMS.
template <class T>
OG_INLINE void dnorm(T* d, const T* g, const T* a, bool centred, T eps, int64_t width) {
  T centre = 0, mean = 0, square, slope;
  const auto of_a = [=](int64_t i, int64_t n) { return some(a, i, n); };
  const auto of_g = [=](int64_t i, int64_t n) { return some(g, i, n); };
  if (centred) row_sums<T>(width, centre, mean, of_a, of_g);
  const auto squared = [=](int64_t i, int64_t n) {
    const Vec<T> x = some(a, i, n) - centre;
    return x * x;
  };
  const auto times_g = [=](int64_t i, int64_t n) { return some(g, i, n) * (some(a, i, n) - centre); };
  row_sums<T>(width, square, slope, squared, times_g);
  const T scale = T{1} / std::sqrt(square + eps);
  slope *= scale;
  each_of_row(d, width, [=](int64_t i, int64_t n) {
    const Vec<T> y = (some(a, i, n) - centre) * scale;
    return (some(g, i, n) - mean - y * slope) * scale;
  });
}

// One operation on `rows` rows; eps is a slot of which each element holds it.
template <class T>
void over_rows(Op op, T* d, const T* a, const T* b, const T* c, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, d += width, a += width) {
    const T* second = b == nullptr ? nullptr : b + r * width;
    switch (op) {
      case Op::mean: {
        const T mean = row_mean(a, width);
        each_of_row(d, width, [=](int64_t, int64_t) { return splat(mean); });
        break;
      }
      case Op::layer_norm: norm(d, a, row_mean(a, width), *b, width); break;
      case Op::rms_norm: norm(d, a, T{0}, *b, width); break;
      case Op::dlayer_norm: dnorm(d, a, second, true, *c, width); break;
      default: dnorm(d, a, second, false, *c, width); break;
    }
  }
}

}  // namespace OG_ISA
