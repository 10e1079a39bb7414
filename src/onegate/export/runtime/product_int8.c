/* y = from + W x for a panel of rows at a time, where from may be y; scale is that of each row. Rows are a multiple of 4. */
static SHARED void product(float *y, const float *from, MATRIX_IS, const int16_t *x, const float *scale, unsigned rows,
                    unsigned columns) {
  OPERAND(v, x, columns);
  for (unsigned first = 0u; first < rows; first += 16u, w += 16u * columns, y += 16, from += 16, scale += 16) {
    const unsigned left = rows - first < 16u ? rows - first : 16u;
    int32_t sum[16];
    PANEL(sum, w, v, left, columns);
#if ROWS == 16u
    float made[16]; /* y may be from: vectors want a place of their own */
    for (unsigned i = 0u; i < 16u; i++) made[i] = from[i] + (float)sum[i] * scale[i];
    memcpy(y, made, sizeof made);
#else
    for (unsigned i = 0u; i < left; i++) y[i] = from[i] + (float)sum[i] * scale[i];
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

/* x 2^e as whole numbers. */
static SHARED void rounded(int16_t *q, const float *x, unsigned n, float factor) {
  unsigned i = 0u;
#if defined(__SSE2__) && !defined(ONEGATE_NO_VECTORS)
  const __m128 by = _mm_set1_ps(factor), most = _mm_set1_ps(32767.0f), least = _mm_set1_ps(-32767.0f);
  for (; i + 8u <= n; i += 8u) {
    const __m128 a = _mm_min_ps(_mm_mul_ps(_mm_loadu_ps(x + i), by), most); /* NaN becomes `most` */
    const __m128 b = _mm_min_ps(_mm_mul_ps(_mm_loadu_ps(x + i + 4u), by), most);
    const __m128i low = _mm_cvtps_epi32(_mm_max_ps(a, least)), high = _mm_cvtps_epi32(_mm_max_ps(b, least));
    _mm_storeu_si128((__m128i *)(void *)(q + i), _mm_packs_epi32(low, high));
  }
#endif
  for (; i < n; i++) q[i] = whole(x[i] * factor);
}
