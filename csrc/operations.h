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
  X(18, softplus, 1, softplus<T>(x))
