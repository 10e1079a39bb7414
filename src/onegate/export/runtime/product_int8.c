/* y += W x for a panel of rows at a time; scale is that of each row. Rows are a multiple of 4. */
static void product(float *y, MATRIX_IS, const int16_t *x, const float *scale, unsigned rows,
                    unsigned columns) {
  OPERAND(v, x, columns);
  for (unsigned first = 0u; first < rows; first += 16u, w += 16u * columns, y += 16, scale += 16) {
    const unsigned left = rows - first < 16u ? rows - first : 16u;
    int32_t sum[16];
    PANEL(sum, w, v, left, columns);
#if ROWS == 16u
    for (unsigned i = 0u; i < 16u; i++) y[i] += (float)sum[i] * scale[i];
#else
    for (unsigned i = 0u; i < left; i++) y[i] += (float)sum[i] * scale[i];
#endif
  }
}

static inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

/* Rounded to int16: 1.5 2^23 leaves a whole number in the lowest bits. NaN becomes an end. */
static inline int16_t whole(float v) {
  const float below = v < 32767.0f ? v : 32767.0f;
  const float t = (below > -32767.0f ? below : -32767.0f) + 12582912.0f;
  return (int16_t)(int32_t)(bits_of(t) - 0x4B400000u);
}
