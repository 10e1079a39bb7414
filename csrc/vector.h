// Vectors through the compiler's vector extension, and the functions that units need on them.
// The same source serves every instruction set: OG_VECTOR_BYTES says how wide a register is.
#pragma once

#include <cstdint>
#include <cstring>

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

// The first `count` lanes (0 <= count <= lanes); the others are zero.
template <class T> OG_INLINE Vec<T> load_part(const T* p, int64_t count) {
  T lanes[kLanes<T>] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
}
template <class T> OG_INLINE void store_part(T* p, Vec<T> v, int64_t count) {
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// Range reduction x = n ln2 + r, |r| <= ln2 / 2, and the Taylor series of exp(r) - 1: the first
// term left out is below half a unit in the last place. Adding `magic` rounds to an integer, which
// then stands in the low bits of the sum. overflow: (bias + 2) ln2, where half of exp is infinite; flat:
// where 1 is no longer changed by exp(-x).
template <class T> struct ExpConstants;
template <> struct ExpConstants<float> {
  static constexpr float magic = 12582912.0f, log2e = 1.44269504f;
  static constexpr float ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
  static constexpr float overflow = 89.4159863f, flat = 20.0f;
  static constexpr int mantissa = 23, bias = 127, degree = 7;
};
template <> struct ExpConstants<double> {
  static constexpr double magic = 6755399441055744.0, log2e = 1.4426950408889634;
  static constexpr double ln2_high = 0.69314718036912382, ln2_low = 1.9082149292705877e-10;
  static constexpr double overflow = 710.47586007394386, flat = 44.0;
  static constexpr int mantissa = 52, bias = 1023, degree = 13;
};

constexpr double inverse_factorial(int n) { return n <= 1 ? 1.0 : inverse_factorial(n - 1) / n; }

template <class T, int k> struct Taylor {  // sum over j >= k of r^(j-k) / j!
  static OG_INLINE Vec<T> at(Vec<T> r) {
    constexpr T c = static_cast<T>(inverse_factorial(k));
    if constexpr (k == ExpConstants<T>::degree) {
      return splat<T>(c);
    } else {
      return Taylor<T, k + 1>::at(r) * r + c;
    }
  }
};

template <class T> struct Scaled {  // exp(x) = 2^shift scale (1 + rest), with rest = tail r
  Vec<T> scale, tail, r;
};

// A NaN passes through every comparison below as false, and so through to the result.
template <class T, int shift> OG_INLINE Scaled<T> exp_parts(Vec<T> x, T low, T high) {
  using C = ExpConstants<T>;
  x = x > high ? splat<T>(high) : x;
  x = x < low ? splat<T>(low) : x;
  const Vec<T> shifted = x * C::log2e + C::magic;
  const Vec<T> n = shifted - C::magic;
  const Vec<T> r = (x - n * C::ln2_high) - n * C::ln2_low;
  VecInt<T> bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << C::mantissa) + (typename Lanes<T>::Int{C::bias - shift} << C::mantissa);
  Scaled<T> parts;
  std::memcpy(&parts.scale, &bits, sizeof bits);
  parts.tail = Taylor<T, 1>::at(r);
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
  x = x > high ? splat<T>(high) : x;
  x = x < low ? splat<T>(low) : x;
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
  return (Taylor<T, 1>::at(r) * r + T{1}) * factors[0] * factors[1];
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

}  // namespace OG_ISA
