/* Sums of int8 times int16, exact, for a panel of 16 rows: sum[row] = W[row] x. Each four columns are
   16 words, one for a row; the middle two bytes of a word have changed places, as the dual 16-bit
   multiplications of Cortex-M4 want them. Columns are a multiple of 4, at most 512. */
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>
#define ROWS 16u /* are computed together */

/* x = 256 high + low - 32768 with high and low unsigned, in the order of the weights' bytes: for
   eight columns two words of low bytes, and two of high ones. */
typedef struct { uint32_t words[256 + 32]; } operand;

static inline void prepare(operand *to, const int16_t *x, unsigned columns) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15));
  const __m512i sign = _mm512_set1_epi16((short)0x8000);
  for (unsigned j = 0u; j < columns; j += 32u) {
    const unsigned left = columns - j;
    const __mmask32 mask = left >= 32u ? 0xffffffffu : (1u << left) - 1u;
    const __m512i v = _mm512_xor_si512(_mm512_maskz_loadu_epi16(mask, x + j), sign);
    _mm512_storeu_si512(to->words + j / 2u, _mm512_shuffle_epi8(v, order));
  }
}

typedef struct { __m512i low, high; } sums; /* of a panel's rows */

static inline sums with(sums s, const int8_t *w, uint32_t low, uint32_t high) {
  const __m512i a = _mm512_loadu_si512(w);
  s.low = _mm512_dpbusd_epi32(s.low, _mm512_set1_epi32((int)low), a);
  s.high = _mm512_dpbusd_epi32(s.high, _mm512_set1_epi32((int)high), a);
  return s;
}

static inline __m512i total(__m512i a, __m512i b, __m512i c, __m512i d) {
  return _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
}

/* Four sums at a time, as one multiplication waits for another. totals: 32768 times the sum of each row's weights. */
#define TOTALS
static void panel(int32_t *sum, const int8_t *w, const int32_t *totals, const operand *x, unsigned columns) {
  const __m512i zero = _mm512_setzero_si512();
  sums a = {zero, zero}, b = a, c = a, d = a;
  const uint32_t *v = x->words;
  unsigned j = 0u;
  for (; j + 16u <= columns; j += 16u, v += 8, w += 256) {
    a = with(a, w, v[0], v[2]);
    b = with(b, w + 64, v[1], v[3]);
    c = with(c, w + 128, v[4], v[6]);
    d = with(d, w + 192, v[5], v[7]);
  }
  for (; j < columns; j += 8u, v += 4, w += 128) {
    a = with(a, w, v[0], v[2]);
    if (j + 4u < columns) b = with(b, w + 64, v[1], v[3]);
  }
  const __m512i low = total(a.low, b.low, c.low, d.low);
  const __m512i high = _mm512_slli_epi32(total(a.high, b.high, c.high, d.high), 8);
  _mm512_storeu_si512(sum, _mm512_sub_epi32(_mm512_add_epi32(low, high), _mm512_loadu_si512(totals)));
}
#elif defined(__SSE2__) && !defined(ONEGATE_NO_VECTORS)
#include <immintrin.h>
#define ROWS 16u

typedef struct { int16_t x[512]; } operand; /* in the order of the weights' bytes */

static inline void prepare(operand *to, const int16_t *x, unsigned columns) {
  for (unsigned j = 0u; j < columns; j += 4u) {
    const __m128i four = _mm_loadl_epi64((const __m128i *)(const void *)(x + j));
    _mm_storel_epi64((__m128i *)(void *)(to->x + j), _mm_shufflelo_epi16(four, 0xD8));
  }
}

#ifdef __AVX2__
static void panel(int32_t *sum, const int8_t *w, const operand *x, unsigned rows, unsigned columns) {
  __m256i s[4]; /* four rows each, two sums a row */
  (void)rows;
  s[0] = s[1] = s[2] = s[3] = _mm256_setzero_si256();
  for (unsigned j = 0u; j < columns; j += 4u, w += 64) {
    const __m256i v = _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)(x->x + j)));
    const __m128i *four = (const __m128i *)(const void *)w;
    s[0] = _mm256_add_epi32(s[0], _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(four)), v));
    s[1] = _mm256_add_epi32(s[1], _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(four + 1)), v));
    s[2] = _mm256_add_epi32(s[2], _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(four + 2)), v));
    s[3] = _mm256_add_epi32(s[3], _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(four + 3)), v));
  }
  const __m256i a = _mm256_permute4x64_epi64(_mm256_hadd_epi32(s[0], s[1]), 0xD8);
  const __m256i b = _mm256_permute4x64_epi64(_mm256_hadd_epi32(s[2], s[3]), 0xD8);
  _mm256_storeu_si256((__m256i *)(void *)sum, a);
  _mm256_storeu_si256((__m256i *)(void *)(sum + 8), b);
}
#else
static inline __m128i both(__m128i sum, __m128i wide, __m128i v) {
  return _mm_add_epi32(sum, _mm_madd_epi16(_mm_srai_epi16(wide, 8), v));
}

static void panel(int32_t *sum, const int8_t *w, const operand *x, unsigned rows, unsigned columns) {
  for (unsigned row = 0u; row < rows; row += 4u, w += 16) {
    __m128i a = _mm_setzero_si128(), b = a; /* two rows each, two sums a row */
    const int8_t *four = w;
    for (unsigned j = 0u; j < columns; j += 4u, four += 64) {
      const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)(x->x + j));
      const __m128i xs = _mm_unpacklo_epi64(v, v), u = _mm_loadu_si128((const __m128i *)(const void *)four);
      a = both(a, _mm_unpacklo_epi8(u, u), xs);
      b = both(b, _mm_unpackhi_epi8(u, u), xs);
    }
    int32_t half[8];
    _mm_storeu_si128((__m128i *)(void *)half, a);
    _mm_storeu_si128((__m128i *)(void *)(half + 4), b);
    for (unsigned i = 0u; i < 4u; i++) sum[row + i] = half[2u * i] + half[2u * i + 1u];
  }
}
#endif
#else
typedef int16_t operand; /* as it lies */
#define PLAIN_OPERAND

#ifdef __ARM_FEATURE_DSP
static inline int32_t four(int32_t sum, const int8_t *w, uint32_t x01, uint32_t x23) {
  uint32_t word, even, odd;
  memcpy(&word, w, 4u);
  __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(word));
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(word));
  __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(even), "r"(x01));
  __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(odd), "r"(x23));
  return sum;
}

static void panel(int32_t *sum, const int8_t *w, const operand *x, unsigned rows, unsigned columns) {
  for (unsigned row = 0u; row < rows; row += 4u, w += 16) {
    int32_t a = 0, b = 0, c = 0, d = 0;
    const int8_t *v = w;
    for (const operand *at = x, *end = x + columns; at != end; at += 4, v += 64) {
      uint32_t x01, x23;
      memcpy(&x01, at, 4u);
      memcpy(&x23, at + 2, 4u);
      a = four(a, v, x01, x23);
      b = four(b, v + 4, x01, x23);
      c = four(c, v + 8, x01, x23);
      d = four(d, v + 12, x01, x23);
    }
    sum[row] = a, sum[row + 1u] = b, sum[row + 2u] = c, sum[row + 3u] = d;
  }
}
#else
static void panel(int32_t *sum, const int8_t *w, const operand *x, unsigned rows, unsigned columns) {
  for (unsigned row = 0u; row < rows; row += 2u, w += 8) {
    int32_t a = 0, b = 0;
    const int8_t *v = w;
    for (const operand *at = x, *end = x + columns; at != end; at += 4, v += 64) {
      int32_t p = at[0]; /* one at a time: a Cortex-M0+ has eight registers to compute with */
      a += v[0] * p, b += v[4] * p;
      p = at[1];
      a += v[2] * p, b += v[6] * p;
      p = at[2];
      a += v[1] * p, b += v[5] * p;
      p = at[3];
      a += v[3] * p, b += v[7] * p;
    }
    sum[row] = a, sum[row + 1u] = b;
  }
}
#endif
#endif
#ifdef TOTALS
#define MATRIX(w) w, w##_t
#define MATRIX_IS const int8_t *w, const int32_t *totals
#define PANEL(sum, w, x, rows, columns) (void)(rows), panel(sum, w, totals, x, columns), totals += 16
#else
#define MATRIX(w) w
#define MATRIX_IS const int8_t *w
#define PANEL panel
#endif
#ifdef PLAIN_OPERAND
#define OPERAND(name, x, columns) const operand *name = x
#else
#define OPERAND(name, x, columns) operand name[1]; prepare(name, x, columns)
#endif
#ifndef ROWS
#define ROWS 4u
#endif
