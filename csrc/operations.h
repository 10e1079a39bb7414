// The operations of a step: opcode, name, operands, and what is computed of x, y and z.
//
// onegate/ops.py has the same rows; when the library is loaded the two are compared. A new operation is
// a row there and a line here, with its vector function in vector.h. Opcodes outlive versions, in
// programs that were saved: none is ever given to another operation.
#pragma once

// A product is rounded before it is added to, as in the equations; see vector.h.
#define OG_OPERATIONS(X)                                        \
  X(0, copy, 1, x)                                              \
  X(1, add, 2, x + y)                                           \
  X(2, sub, 2, x - y)                                           \
  X(3, mul, 2, x * y)                                           \
  X(4, neg, 1, -x)                                              \
  X(5, sigmoid, 1, sigmoid<T>(x))                               \
  X(6, tanh, 1, tanh<T>(x))                                     \
  X(7, relu, 1, relu<T>(x))                                     \
  X(8, lerp, 3, rounded((T{1} - x) * y) + rounded(x * z))       \
  X(9, muladd, 3, rounded(x * y) + z)                           \
  X(10, mulsub, 3, rounded(x * y) - z)                          \
  X(11, negmuladd, 3, z - rounded(x * y))                       \
  X(12, rest, 2, (T{1} - x) * y)                                \
  X(13, dsigmoid, 2, x * (y - y * y))                           \
  X(14, dtanh, 2, x * (T{1} - y * y))                           \
  X(15, drelu, 2, y <= T{0} ? Vec<T>{} : x)                     \
  X(16, reduce, 1, x) /* sums over rows: see run_block */       \
  X(17, exp, 1, exp<T>(x))                                      \
  X(18, softplus, 1, softplus<T>(x))                            \
  X(19, div, 2, x / y)                                          \
  X(20, maximum, 2, ((x != x) | (x > y)) ? x : y)              \
  X(21, minimum, 2, ((x != x) | (x < y)) ? x : y)              \
  X(22, log, 1, log<T>(x))                                      \
  X(23, abs, 1, x < T{0} ? -x : x)                              \
  X(24, sqrt, 1, sqrt<T>(x))                                    \
  X(25, square, 1, x * x)                                       \
  X(26, silu, 1, x / (exp<T>(-x) + T{1}))                       \
  X(27, hard_sigmoid, 1, clip<T>(x + T{3}, T{0}, T{6}) / T{6})  \
  X(28, hard_tanh, 1, clip<T>(x, T{-1}, T{1}))                  \
  X(29, dmaximum, 3, y == z ? x * T{0.5} : (y < z ? Vec<T>{} : x)) \
  X(30, sign, 1, sign<T>(x))                                    \
  X(31, dsilu, 2, dsilu<T>(x, y))                               \
  X(32, within, 3, ((y < z) & (y > -z)) ? x : Vec<T>{})         \
  /* With numbers of a row: see narrow() and rows.h. */         \
  X(33, mean, 1, x)                                             \
  X(34, variance, 2, x)                                         \
  X(35, mean_product, 2, x)                                     \
  X(36, scaled, 2, x)                                           \
  X(37, normed, 3, x)                                           \
  X(38, minus_scaled, 3, x)                                     \
  X(39, reduce_product, 2, x) /* sums over rows, as reduce */
