/* exp(r) - 1 for |r| <= log(2)/2, and 2^k: no libm, so that all machines give the same bits. */
static inline float expm1_near_0(float r) {
  const float q = 0.5f + r * (0x1.555556p-3f + r * (0x1.555556p-5f + r * (0x1.111112p-7f +
                  r * (0x1.6c16c2p-10f + r * 0x1.a01a02p-13f))));
  return r + (r * r) * q;
}

static inline float from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline uint32_t to_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

/* x between two bounds; NaN stays. gcc makes vectors of a loop only if no branch is in it. */
static inline float clampf_(float x, float low, float high) {
#if defined(__thumb__) && !defined(__ARM_NEON)
  return x < low ? low : x > high ? high : x;
#else
  const uint32_t below = 0u - (uint32_t)(x < low), above = 0u - (uint32_t)(x > high);
  return from_bits((to_bits(x) & ~(below | above)) | (to_bits(low) & below) | (to_bits(high) & above));
#endif
}

/* x = k log(2) + r; k is returned as an unsigned number, by 256 too large. */
static inline uint32_t reduce(float x, float *r) {
  const float t = x * 0x1.715476p+0f + 12582912.0f; /* 1.5 2^23 rounds to a whole number */
  const float k = t - 12582912.0f;
  *r = (x - k * 0x1.62e400p-1f) - k * 0x1.7f7d1cp-20f;
  return to_bits(t) - 0x4B400000u + 256u;
}

static inline float expf_(float x) {
  float r;
  const uint32_t k = reduce(clampf_(x, -105.0f, 89.0f), &r), half = k >> 1;
  return ((1.0f + expm1_near_0(r)) * from_bits((half - 1u) << 23)) * from_bits((k - half - 1u) << 23);
}

static inline float sigmoidf_(float x) { return 1.0f / (1.0f + expf_(-x)); }

/* tanh(x) = m / (m + 2) with m = exp(2x) - 1, formed without cancellation near 0. */
static inline float tanhf_(float x) {
  float r;
  const float near = clampf_(x, -10.0f, 10.0f);
  const float s = from_bits((reduce(near + near, &r) - 129u) << 23);
  const float m = s * expm1_near_0(r) + (s - 1.0f);
  return m / (m + 2.0f);
}

static inline float reluf_(float x) { return x < 0.0f ? 0.0f : x; }

/* log(1 + exp(x)) = max(x, 0) + 2 atanh(u / (2 + u)) with u = exp(-|x|). */
static inline float softplusf_(float x) {
  const float u = expf_(x < 0.0f ? x : -x), s = u / (2.0f + u), q = s * s;
  const float series = 1.0f + q * (0x1.555556p-2f + q * (0x1.99999ap-3f + q * (0x1.24924ap-3f +
                       q * (0x1.c71c72p-4f + q * (0x1.745d18p-4f + q * (0x1.3b13b2p-4f + q * 0x1.111112p-4f))))));
  return reluf_(x) + (s + s) * series;
}

static inline float absf_(float x) { return from_bits(to_bits(x) & 0x7FFFFFFFu); }

/* NaN if either is. */
static inline float maximumf_(float a, float b) { return a != a || a > b ? a : b; }

static inline float minimumf_(float a, float b) { return a != a || a < b ? a : b; }

/* x = 2^k m with m between sqrt(1/2) and sqrt(2); log(m) = 2 atanh((m - 1) / (m + 1)). */
static inline float logf_(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? from_bits(0xFF800000u) : from_bits(0x7FC00000u);
  if (to_bits(x) == 0x7F800000u) return x;
  const int small = x < 0x1p-126f;
  const uint32_t u = to_bits(small ? x * 0x1p24f : x) - 0x3F3504F3u;
  const float m = from_bits((u & 0x007FFFFFu) + 0x3F3504F3u);
  const float k = (float)((int32_t)((u >> 23) ^ 0x100u) - 0x100 - (small ? 24 : 0));
  const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  const float series = q * (0x1.555556p-2f + q * (0x1.99999ap-3f + q * (0x1.24924ap-3f + q * 0x1.c71c72p-4f)));
  return k * 0x1.62e400p-1f + ((s + s) + ((s + s) * series + k * 0x1.7f7d1cp-20f));
}

/* Newton's steps from the number with half of the exponent. */
static inline float sqrtf_(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? x : from_bits(0x7FC00000u);
  if (to_bits(x) == 0x7F800000u) return x;
  const int small = x < 0x1p-126f;
  const float v = small ? x * 0x1p24f : x;
  float y = from_bits((to_bits(v) >> 1) + 0x1FC00000u);
  y = 0.5f * (y + v / y);
  y = 0.5f * (y + v / y);
  y = 0.5f * (y + v / y);
  return small ? y * 0x1p-12f : y;
}

/* y = (v[0] - mean) / sqrt(variance + eps), over the n elements of all `count` vectors together; if not centred the mean
   counts as 0. Four partial sums by place mod 4. y is filled up to a multiple of 16. */
static SHARED void norm(float *y, const float *const *v, unsigned count, unsigned n, int centred, float eps) {
  const float all = (float)(count * n);
  float centre = 0.0f, squares = 0.0f;
  for (int pass = centred ? 0 : 1; pass < 2; pass++) {
    float total = 0.0f;
    for (unsigned k = 0u; k < count; k++) {
      float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      for (unsigned i = 0u; i < n; i++) {
        const float d = v[k][i] - centre;
        part[i & 3u] += pass ? d * d : d;
      }
      total += (part[0] + part[1]) + (part[2] + part[3]);
    }
    if (pass) squares = total / all;
    else centre = total / all;
  }
  const float scale = 1.0f / sqrtf_(squares + eps);
  for (unsigned i = 0u; i < (n + 15u) / 16u * 16u; i++) y[i] = (v[0][i] - centre) * scale;
}
