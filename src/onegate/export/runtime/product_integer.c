/* v / 2^16 * m, rounded down, without a product of 64 bits; 0 <= m < 2^15. */
static inline int32_t times(int32_t v, uint16_t m) {
  return (v >> 16) * (int32_t)m + (int32_t)((((uint32_t)v & 0xffffu) * m) >> 16);
}

/* y = from + W x for a panel of rows at a time, where from may be y; m / 2^(16 + shift) is the scale of each row. */
static SHARED void product(int32_t *y, const int32_t *from, MATRIX_IS, const int16_t *x, const uint16_t *m, unsigned rows,
                    unsigned columns, unsigned shift) {
  const int32_t half = (int32_t)(1u << shift >> 1);
  OPERAND(v, x, columns);
  for (unsigned first = 0u; first < rows; first += 16u, w += 16u * columns, y += 16, from += 16, m += 16) {
    const unsigned left = rows - first < 16u ? rows - first : 16u;
    int32_t sum[16];
    PANEL(sum, w, v, left, columns);
#if ROWS == 16u
    int32_t made[16]; /* y may be from: vectors want a place of their own */
    for (unsigned i = 0u; i < 16u; i++) made[i] = from[i] + ((times(sum[i], m[i]) + half) >> shift);
    memcpy(y, made, sizeof made);
#else
    for (unsigned i = 0u; i < left; i++) y[i] = from[i] + ((times(sum[i], m[i]) + half) >> shift);
#endif
  }
}
