/* y = from + W x, where from may be y. W lies in panels of 16 rows, column by column; four partial sums by column mod 4,
   the last one to three columns with the first sum, in this order with vectors and without. */
#if defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__)) && \
    !defined(ONEGATE_NO_VECTORS)
/* gcc keeps vectors in memory that are wider than the machine's; clang takes several registers. */
#if defined(__AVX512F__) || (defined(__clang__) && (defined(__AVX__) || defined(__aarch64__)))
#define LANES 16u
#elif defined(__AVX__) || defined(__clang__)
#define LANES 8u
#else
#define LANES 4u
#endif
typedef float vec __attribute__((vector_size(4u * LANES), aligned(4), may_alias));

static SHARED void product(float *y, const float *from, const float *w, const float *x, unsigned panels,
                           unsigned columns) {
  for (unsigned row = 0u; row < 16u * panels; row += LANES) {
    const float *v = w + (row & ~15u) * columns + (row & 15u);
    vec a = {0}, b = {0}, c = {0}, d = {0};
    unsigned j = 0u;
    for (; j + 4u <= columns; j += 4u, v += 64) {
      a += *(const vec *)(const void *)v * x[j];
      b += *(const vec *)(const void *)(v + 16) * x[j + 1u];
      c += *(const vec *)(const void *)(v + 32) * x[j + 2u];
      d += *(const vec *)(const void *)(v + 48) * x[j + 3u];
    }
    for (; j < columns; j++, v += 16) a += *(const vec *)(const void *)v * x[j];
    *(vec *)(void *)(y + row) = *(const vec *)(const void *)(from + row) + ((a + b) + (c + d));
  }
}
#else
static SHARED void product(float *y, const float *from, const float *w, const float *x, unsigned panels,
                    unsigned columns) {
  for (; panels > 0u; panels--, w += 16u * columns) {
    for (unsigned row = 0u; row < 16u; row += 2u, y += 2, from += 2) {
      const float *v = w + row, *at = x, *end = x + (columns & ~3u);
      float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f, e = 0.0f, f = 0.0f, g = 0.0f, h = 0.0f;
      for (; at != end; at += 4, v += 64) {
        const float p = at[0], q = at[1], r = at[2], s = at[3];
        a += v[0] * p, e += v[1] * p;
        b += v[16] * q, f += v[17] * q;
        c += v[32] * r, g += v[33] * r;
        d += v[48] * s, h += v[49] * s;
      }
      for (end = x + columns; at != end; at++, v += 16) a += v[0] * at[0], e += v[1] * at[0];
      y[0] = from[0] + ((a + b) + (c + d));
      y[1] = from[1] + ((e + f) + (g + h));
    }
  }
}
#endif
