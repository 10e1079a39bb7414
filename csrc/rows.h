// Operations with numbers of a row: means over its elements, and what is done with them.
#pragma once

#include <type_traits>

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

// A vector operand: the same for all rows where `step` is 0.
template <class T> struct Rows {
  T* at;
  int64_t step;
  T* row(int64_t r) const { return at + r * step; }
};

// body(v, i, n) for every vector of a row: the v-th, n elements from the i-th on. N: how many there are,
// where the compiler is to know, so that rows are no loops and end without a guess; else 0.
#define OG_BODY [&](int64_t v, int64_t i, int64_t n) __attribute__((always_inline))
template <class T, int N, class F> OG_INLINE void each_vector(int64_t width, F body) {
  constexpr int64_t L = kLanes<T>;
  if constexpr (N > 0) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < N - 1; ++v) body(v, v * L, L);
    body(N - 1, (N - 1) * L, width - (N - 1) * L);
  } else {
    int64_t i = 0;
    for (; i + L <= width; i += L) body(0, i, L);
    if (i < width) body(0, i, width - i);
  }
}
// What of(count) is for the number of a row's vectors, as a constant.
template <class T, class F> OG_INLINE void with_vectors(int64_t width, F of) {
  switch ((width + kLanes<T> - 1) / kLanes<T>) {
#define OG_COUNT(N) \
  case N: return of(std::integral_constant<int, N>());
    OG_COUNT(1) OG_COUNT(2) OG_COUNT(3) OG_COUNT(4) OG_COUNT(5) OG_COUNT(6) OG_COUNT(7) OG_COUNT(8)
#undef OG_COUNT
    default: return of(std::integral_constant<int, 0>());
  }
}

template <class T> OG_INLINE void put(T* to, int64_t i, Vec<T> v, int64_t n) {
  if (n == kLanes<T>)
    store(to + i, v);
  else
    store_part(to + i, v, n);
}

// The groups of program.h, each in one pass. Null: a result that nobody else reads.
template <class T, int N>
void moments(T* mean, T* variance, Rows<T> a, int64_t rows, int64_t width) {
  const T count = static_cast<T>(width);
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = a.row(r);
    Vec<T> row[N > 0 ? N : 1], sums{}, squares{};
    each_vector<T, N>(width, OG_BODY {
      row[v] = some(x, i, n);
      sums += row[v];
    });
    const T m = lane_sum<T>(sums) / count;
    each_vector<T, N>(width, OG_BODY {
      const Vec<T> all = N > 0 ? row[v] - m : some(x, i, n) - m;
      const Vec<T> apart = n == kLanes<T> ? all : first_of<T>(all, n);
      squares += apart * apart;
    });
    mean[r] = m;
    variance[r] = lane_sum<T>(squares) / count;
  }
}

// normed = (a - m) s, or a s where there is no m; d = normed g + h.
template <class T, int N>
void affine(T* normed, T* d, Rows<T> a, const T* m, const T* s, Rows<T> g, Rows<T> h, int64_t rows,
            int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *x = a.row(r), *gain = g.row(r), *shift = h.row(r);
    const T centre = m == nullptr ? T{0} : m[r], scale = s[r];
    const int64_t at = r * width;
    each_vector<T, N>(width, OG_BODY {
      (void)v;
      Vec<T> value = some(x, i, n);
      if (m != nullptr) value -= centre;
      value *= scale;
      if (normed != nullptr) put(normed + at, i, value, n);
      put(d + at, i, rounded(value * some(gain, i, n)) + some(shift, i, n), n);
    });
  }
}

// t = a g, its mean m, and p, the mean of t b.
template <class T, int N>
void gained(T* t, T* m, T* p, Rows<T> a, Rows<T> g, Rows<T> b, int64_t rows, int64_t width) {
  const T count = static_cast<T>(width);
  for (int64_t r = 0; r < rows; ++r) {
    const T *x = a.row(r), *gain = g.row(r), *other = b.row(r);
    T* to = t + r * width;
    Vec<T> sums{}, products{};
    each_vector<T, N>(width, OG_BODY {
      (void)v;
      const Vec<T> value = rounded(some(x, i, n) * some(gain, i, n));
      put(to, i, value, n);
      sums += value;
      products += value * some(other, i, n);
    });
    m[r] = lane_sum<T>(sums) / count;
    p[r] = lane_sum<T>(products) / count;
  }
}

// normed as above; d = normed - b q.
template <class T, int N>
void apart(T* normed, T* d, Rows<T> a, const T* m, const T* s, Rows<T> b, const T* q, int64_t rows,
           int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *x = a.row(r), *other = b.row(r);
    const T centre = m == nullptr ? T{0} : m[r], scale = s[r], times = q[r];
    const int64_t at = r * width;
    each_vector<T, N>(width, OG_BODY {
      (void)v;
      Vec<T> value = some(x, i, n);
      if (m != nullptr) value -= centre;
      value *= scale;
      if (normed != nullptr) put(normed + at, i, value, n);
      put(d + at, i, rounded(value) - rounded(some(other, i, n) * times), n);
    });
  }
}

}  // namespace OG_ISA
