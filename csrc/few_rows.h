// Products for so few rows that a matrix is worth reading once, as it lies, and not worth packing.
#pragma once

#include <algorithm>

#include "stored.h"

namespace OG_ISA {

// Row-steps up to which packing the matrices does not pay: it costs most where they are large, and
// in the backward pass the weights' gradients gain as well.
constexpr int64_t kFewForward = 24, kFewRows = 64, kFewRowsOfSmall = 8, kSmall = 128 * 1024;

// result[0..ROWS, columns c..c+4) += left right': right is (width x k), row-major, its numbers T or stored
// as S.
template <class T, int ROWS, class S>
OG_INLINE void dot_block(T* result, int64_t result_stride, const T* left, int64_t left_stride,
                         const S* right, int64_t k, int64_t columns) {
  constexpr int L = kLanes<T>, J = 4;  // four independent streams of weights
  Vec<T> sum[ROWS][J] = {};
  int64_t i = 0;
  for (; i + L <= k; i += L)
    for (int j = 0; j < J; ++j) {
      if (j >= columns) break;
      const Vec<T> w = load_wide<T>(right + j * k + i);
      for (int r = 0; r < ROWS; ++r) sum[r][j] += load(left + r * left_stride + i) * w;
    }
  T rest[J][L];
  for (int j = 0; i < k && j < J && j < columns; ++j) {
    const Vec<T> last = load_wide_part<T>(right + j * k + i, k - i);
    store(rest[j], last);
  }
  for (int r = 0; r < ROWS; ++r)
    for (int j = 0; j < J && j < columns; ++j) {
      T lanes[L], total = 0;
      store(lanes, sum[r][j]);
      for (int l = 0; l < L; ++l) total += lanes[l];
      for (int64_t at = i; at < k; ++at) total += left[r * left_stride + at] * rest[j][at - i];
      result[r * result_stride + j] += total;
    }
}

// result (rows x width) += left right' for columns [first, last): right is (width x k).
template <class T, class S>
void add_transposed(T* result, int64_t result_stride, const T* left, int64_t left_stride,
                    const S* right, int64_t k, int64_t rows, int64_t first, int64_t last) {
  for (int64_t c = first; c < last; c += 4) {
    const int64_t columns = std::min<int64_t>(4, last - c);
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2)
      dot_block<T, 2>(result + r * result_stride + c, result_stride, left + r * left_stride,
                      left_stride, right + c * k, k, columns);
    if (r < rows)
      dot_block<T, 1>(result + r * result_stride + c, result_stride, left + r * left_stride,
                      left_stride, right + c * k, k, columns);
  }
}

constexpr int kDepth = 8;  // rows of a matrix that are read side by side

// sums[c][r] += left[r][0..DEPTH) right[0..DEPTH)[c], c counting vectors of columns: each vector of
// weights is loaded once for all rows.
template <class T, int DEPTH, class S>
OG_INLINE void add_rows(T* sums, const T* left, int64_t left_stride, const S* right, int64_t width,
                        int64_t rows, int64_t first, int64_t last) {
  constexpr int L = kLanes<T>;
  T factors[kFewRows * DEPTH];
  for (int64_t r = 0; r < rows; ++r)
    for (int j = 0; j < DEPTH; ++j) factors[r * DEPTH + j] = left[r * left_stride + j];
  for (int64_t c = first; c < last; c += L) {
    const int64_t lanes = std::min<int64_t>(L, last - c);
    Vec<T> w[DEPTH];
    for (int j = 0; j < DEPTH; ++j) {
      const S* from = right + j * width + c;
      w[j] = lanes == L ? load_wide<T>(from) : load_wide_part<T>(from, lanes);
    }
    for (int64_t r = 0; r < rows; ++r) {
      T* to = sums + c * rows + r * L;
      Vec<T> sum = load(to);
      for (int j = 0; j < DEPTH; ++j) sum += factors[r * DEPTH + j] * w[j];
      store(to, sum);
    }
  }
}

// result (rows x width) += left right for columns [first, last): right is (k x width). `sums` has
// room for rows x (width rounded up to a panel), of which the same columns are used.
template <class T, class S>
void add_product(T* result, int64_t width, const T* left, int64_t left_stride, const S* right,
                 int64_t k, int64_t rows, int64_t first, int64_t last, T* sums) {
  constexpr int L = kLanes<T>;
  // Columns outermost: rows that lie a power of two apart would push one another out of cache.
  const auto each_vector = [&](auto body) {
    for (int64_t c = first; c < last; c += L)
      for (int64_t r = 0; r < rows; ++r)
        body(sums + c * rows + r * L, result + r * width + c, std::min<int64_t>(L, last - c));
  };
  each_vector([](T* sum, const T* from, int64_t lanes) { store(sum, load_part(from, lanes)); });
  int64_t i = 0;
  for (; i + kDepth <= k; i += kDepth)
    add_rows<T, kDepth>(sums, left + i, left_stride, right + i * width, width, rows, first, last);
  for (; i < k; ++i)
    add_rows<T, 1>(sums, left + i, left_stride, right + i * width, width, rows, first, last);
  each_vector([](const T* sum, T* to, int64_t lanes) { store_part(to, load(sum), lanes); });
}

}  // namespace OG_ISA
