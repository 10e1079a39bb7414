// Vectors through the compiler's vector extension, and the functions that units need on them.
// The same source serves every instruction set: OG_VECTOR_BYTES says how wide a register is.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

// Where the instruction set has what the vector extension cannot say: parts of a register, sums over
// it, roots.
#if OG_VECTOR_BYTES == 64 && defined(__AVX512F__)
#define OG_AVX512 1
#elif OG_VECTOR_BYTES == 32 && defined(__AVX2__)
#define OG_AVX2 1
#endif

namespace OG_ISA {

#define OG_INLINE inline __attribute__((always_inline))

template <class T> struct Lanes;
template <> struct Lanes<float> {
  using Int = int32_t;
  typedef float V __attribute__((vector_size(OG_VECTOR_BYTES)));
  typedef int32_t VI __attribute__((vector_size(OG_VECTOR_BYTES)));
};
template <> struct Lanes<double> {
  using Int = int64_t;
  typedef double V __attribute__((vector_size(OG_VECTOR_BYTES)));
  typedef int64_t VI __attribute__((vector_size(OG_VECTOR_BYTES)));
};
template <class T> using Vec = typename Lanes<T>::V;
template <class T> using VecInt = typename Lanes<T>::VI;
template <class T> constexpr int kLanes = OG_VECTOR_BYTES / static_cast<int>(sizeof(T));

template <class T> OG_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T> OG_INLINE void store(T* p, Vec<T> v) { std::memcpy(p, &v, sizeof v); }
// Bytes as numbers.
template <class T> void widen(T* __restrict to, const uint8_t* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}
template <class T> OG_INLINE Vec<T> splat(T x) { return x - Vec<T>{}; }

// v as a value of its own: a product is rounded before it is added to, as the equations have it. Drawn
// into the sum (fused multiply-add) it would overflow elsewhere than in the reference engine.
template <class V> OG_INLINE V rounded(V v) {
#if defined(__x86_64__) || defined(__i386__)
  __asm__("" : "+x"(v));
#elif defined(__aarch64__)
  __asm__("" : "+w"(v));
#endif
  return v;
}

#if OG_AVX2
// All bits set in the first `count` lanes.
template <class T> OG_INLINE __m256i first_lanes(int64_t count) {
  using I = typename Lanes<T>::Int;
  constexpr int L = kLanes<T>;
  static constexpr I kOnes[2 * L] = {-1, -1, -1, -1, L == 8 ? -1 : 0, L == 8 ? -1 : 0,
                                     L == 8 ? -1 : 0, L == 8 ? -1 : 0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnes + L - count));
}
#endif

// The first `count` lanes (0 <= count <= lanes); the others are zero.
template <class T> OG_INLINE Vec<T> load_part(const T* p, int64_t count) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
  else
    return (Vec<T>)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), p);
#elif OG_AVX2
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm256_maskload_ps(p, first_lanes<T>(count));
  else
    return (Vec<T>)_mm256_maskload_pd(p, first_lanes<T>(count));
#else
  T lanes[kLanes<T>] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
#endif
}
template <class T> OG_INLINE void store_part(T* p, Vec<T> v, int64_t count) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), (__m512)v);
  else
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << count) - 1), (__m512d)v);
#elif OG_AVX2
  if constexpr (std::is_same_v<T, float>)
    _mm256_maskstore_ps(p, first_lanes<T>(count), (__m256)v);
  else
    _mm256_maskstore_pd(p, first_lanes<T>(count), (__m256d)v);
#else
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
#endif
}

// The sum of a vector's lanes.
template <class T> OG_INLINE T lane_sum(Vec<T> v) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    return _mm512_reduce_add_ps((__m512)v);
  else
    return _mm512_reduce_add_pd((__m512d)v);
#else
  // Half by half: one after the other would wait for each.
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int half = kLanes<T> / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
#endif
}

// The smaller of x and a bound, and the larger; a NaN of x stays one.
template <class T> OG_INLINE Vec<T> at_most(Vec<T> x, T bound) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm512_maskz_min_ps(0xffff, (__m512)splat(bound), (__m512)x);
  else
    return (Vec<T>)_mm512_maskz_min_pd(0xff, (__m512d)splat(bound), (__m512d)x);
#elif OG_AVX2
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm256_min_ps((__m256)splat(bound), (__m256)x);
  else
    return (Vec<T>)_mm256_min_pd((__m256d)splat(bound), (__m256d)x);
#else
  return x > bound ? splat<T>(bound) : x;
#endif
}
template <class T> OG_INLINE Vec<T> at_least(Vec<T> x, T bound) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm512_maskz_max_ps(0xffff, (__m512)splat(bound), (__m512)x);
  else
    return (Vec<T>)_mm512_maskz_max_pd(0xff, (__m512d)splat(bound), (__m512d)x);
#elif OG_AVX2
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm256_max_ps((__m256)splat(bound), (__m256)x);
  else
    return (Vec<T>)_mm256_max_pd((__m256d)splat(bound), (__m256d)x);
#else
  return x < bound ? splat<T>(bound) : x;
#endif
}

// Range reduction x = n ln2 + r, |r| <= ln2 / 2, and a polynomial for exp(r) - 1, whose error is
// below half a unit in the last place. Adding `magic` rounds to an integer, which
// then stands in the low bits of the sum. overflow: (bias + 2) ln2, where half of exp is infinite; flat:
// where 1 is no longer changed by exp(-x).
template <class T> struct ExpConstants;
template <> struct ExpConstants<float> {
  static constexpr float magic = 12582912.0f, log2e = 1.44269504f;
  static constexpr float ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
  static constexpr float overflow = 89.4159863f, flat = 20.0f;
  static constexpr int mantissa = 23, bias = 127;
};
template <> struct ExpConstants<double> {
  static constexpr double magic = 6755399441055744.0, log2e = 1.4426950408889634;
  static constexpr double ln2_high = 0.69314718036912382, ln2_low = 1.9082149292705877e-10;
  static constexpr double overflow = 710.47586007394386, flat = 44.0;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr int degree = 13;  // of the series
};

constexpr double inverse_factorial(int n) { return n <= 1 ? 1.0 : inverse_factorial(n - 1) / n; }

template <class T, int k> struct Taylor {  // sum over j >= k of r^(j-k) / j!
  static OG_INLINE Vec<T> at(Vec<T> r) {
    constexpr T c = static_cast<T>(inverse_factorial(k));
    if constexpr (k == ExpConstants<double>::degree) {
      return splat<T>(c);
    } else {
      return Taylor<T, k + 1>::at(r) * r + c;
    }
  }
};

// (exp(r) - 1) / r: the Taylor series, and in float32 a polynomial of one degree less, of which the
// largest error relative to it was made small (1.7e-8; fitted by weighted least squares).
template <class T> OG_INLINE Vec<T> growth(Vec<T> r) {
  if constexpr (sizeof(T) == 8) return Taylor<T, 1>::at(r);
  constexpr T c[] = {0.0013882516f, 0.0083665157f, 0.0416672f, 0.16666544f, 0.49999998f, 1.0f};
  Vec<T> sum = splat<T>(c[0]);
#pragma GCC unroll 5
  for (int k = 1; k < 6; ++k) sum = sum * r + c[k];
  return sum;
}

template <class T> struct Scaled {  // exp(x) = 2^shift scale (1 + rest), with rest = tail r
  Vec<T> scale, tail, r;
};

// A NaN passes through every comparison below as false, and so through to the result.
template <class T, int shift> OG_INLINE Scaled<T> exp_parts(Vec<T> x, T low, T high) {
  using C = ExpConstants<T>;
  x = at_least<T>(at_most<T>(x, high), low);
  const Vec<T> shifted = x * C::log2e + C::magic;
  const Vec<T> n = shifted - C::magic;
  const Vec<T> r = (x - n * C::ln2_high) - n * C::ln2_low;
  VecInt<T> bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << C::mantissa) + (typename Lanes<T>::Int{C::bias - shift} << C::mantissa);
  Scaled<T> parts;
  std::memcpy(&parts.scale, &bits, sizeof bits);
  parts.tail = growth<T>(r);
  parts.r = r;
  return parts;
}

// Half of exp(-x), which is infinite only where the result is 0.
template <class T> OG_INLINE Vec<T> sigmoid(Vec<T> x) {
  using C = ExpConstants<T>;
  const Scaled<T> e = exp_parts<T, 1>(-x, -C::flat, C::overflow);
  return T{0.5} / (e.scale * (e.tail * e.r + T{1}) + T{0.5});
}

// tanh(x) = m / (m + 2) with m = exp(2x) - 1, formed without cancellation near 0.
template <class T> OG_INLINE Vec<T> tanh(Vec<T> x) {
  using C = ExpConstants<T>;
  const Scaled<T> e = exp_parts<T, 0>(x + x, -C::flat, C::flat);
  const Vec<T> m = e.scale * (e.tail * e.r) + (e.scale - T{1});
  return m / (m + T{2});
}

// 2^n in two factors, each of them a number that is neither infinite nor denormal.
template <class T> OG_INLINE Vec<T> exp(Vec<T> x) {
  using C = ExpConstants<T>;
  using I = typename Lanes<T>::Int;
  const T high = (C::bias + 2) / C::log2e, low = -(C::bias + C::mantissa + 2) / C::log2e;
  x = at_least<T>(at_most<T>(x, high), low);
  const Vec<T> shifted = x * C::log2e + C::magic;
  const Vec<T> n = shifted - C::magic;
  const Vec<T> r = (x - n * C::ln2_high) - n * C::ln2_low;
  const Vec<T> magic = splat<T>(C::magic);
  VecInt<T> bits, zero;
  std::memcpy(&bits, &shifted, sizeof bits);
  std::memcpy(&zero, &magic, sizeof zero);
  const VecInt<T> whole = bits - zero, half = whole >> I{1};
  const VecInt<T> one = (half + I{C::bias}) << I{C::mantissa};
  const VecInt<T> other = (whole - half + I{C::bias}) << I{C::mantissa};
  Vec<T> factors[2];
  std::memcpy(&factors[0], &one, sizeof one);
  std::memcpy(&factors[1], &other, sizeof other);
  return (growth<T>(r) * r + T{1}) * factors[0] * factors[1];
}

template <class T> OG_INLINE Vec<T> relu(Vec<T> x) { return x <= T{0} ? Vec<T>{} : x; }

template <class T, int k> struct Atanh {  // sum over j >= k of q^(j-k) / (2j + 1)
  static OG_INLINE Vec<T> at(Vec<T> q) {
    constexpr T c = static_cast<T>(1.0 / (2 * k + 1));
    if constexpr (k == (sizeof(T) == 4 ? 8 : 17)) {
      return splat<T>(c);
    } else {
      return Atanh<T, k + 1>::at(q) * q + c;
    }
  }
};

// log(1 + exp(x)) = max(x, 0) + log(1 + u) with u = exp(-|x|), and log(1 + u) = 2 atanh(u / (2 + u)).
template <class T> OG_INLINE Vec<T> softplus(Vec<T> x) {
  const Vec<T> u = exp<T>(x < T{0} ? x : -x);
  const Vec<T> s = u / (u + T{2});
  return relu<T>(x) + (s + s) * Atanh<T, 0>::at(s * s);
}

// x = 2^n m with m between sqrt(1/2) and sqrt(2), and log(m) = 2 atanh((m - 1) / (m + 1)). A denormal is
// first made a normal number.
template <class T> OG_INLINE Vec<T> log(Vec<T> x) {
  using C = ExpConstants<T>;
  using I = typename Lanes<T>::Int;
  constexpr T smallest = std::numeric_limits<T>::min(), infinite = std::numeric_limits<T>::infinity();
  constexpr T up = static_cast<T>(I{1} << C::mantissa);
  constexpr T root = static_cast<T>(0.70710678118654752);
  const Vec<T> v = x < smallest ? x * up : x;
  Vec<T> n = x < smallest ? splat<T>(T{-C::mantissa}) : Vec<T>{};
  const Vec<T> half = splat<T>(T{0.5});
  VecInt<T> bits, exponent;
  std::memcpy(&bits, &v, sizeof bits);
  std::memcpy(&exponent, &half, sizeof exponent);
  const VecInt<T> fraction = (bits & ((I{1} << C::mantissa) - 1)) | exponent;
  Vec<T> m;  // 1/2 <= m < 1
  std::memcpy(&m, &fraction, sizeof m);
  n += __builtin_convertvector((bits >> I{C::mantissa}) - I{C::bias - 1}, Vec<T>);
  n = m < root ? n - T{1} : n;
  m = m < root ? m + m : m;
  const Vec<T> s = (m - T{1}) / (m + T{1});
  Vec<T> y = n * C::ln2_high + (n * C::ln2_low + (s + s) * Atanh<T, 0>::at(s * s));
  y = x == infinite ? x : y;
  y = x == T{0} ? splat<T>(-infinite) : y;
  return x >= T{0} ? y : splat<T>(std::numeric_limits<T>::quiet_NaN());
}

template <class T> OG_INLINE Vec<T> sqrt(Vec<T> x) {
#if OG_AVX512
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
  else
    return (Vec<T>)_mm512_maskz_sqrt_pd(0xff, (__m512d)x);
#elif OG_AVX2
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm256_sqrt_ps((__m256)x);
  else
    return (Vec<T>)_mm256_sqrt_pd((__m256d)x);
#else
  T lanes[kLanes<T>];
  store(lanes, x);
  for (T& lane : lanes) lane = std::sqrt(lane);
  return load(lanes);
#endif
}

// A NaN stays one.
template <class T> OG_INLINE Vec<T> clip(Vec<T> x, T low, T high) {
  return at_most<T>(at_least<T>(x, low), high);
}

template <class T> OG_INLINE Vec<T> sign(Vec<T> x) {
  const Vec<T> one = splat<T>(T{1});
  return x > T{0} ? one : (x < T{0} ? -one : Vec<T>{});
}

template <class T> OG_INLINE Vec<T> dsilu(Vec<T> g, Vec<T> x) {
  const Vec<T> s = T{1} / (exp<T>(-x) + T{1});
  return g * s * (rounded(x * (T{1} - s)) + T{1});
}

}  // namespace OG_ISA
