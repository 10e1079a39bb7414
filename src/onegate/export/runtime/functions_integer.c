static inline int32_t saturated(int32_t v) { return v > 32767 ? 32767 : v < -32768 ? -32768 : v; }

static inline void narrow(int16_t *q, const int32_t *v, unsigned n) {
  for (unsigned i = 0u; i < n; i++) q[i] = (int16_t)saturated(v[i]);
}

static inline int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

/* A function between the places of its table. */
static inline int32_t look(const int16_t *table, int32_t v) {
  const int32_t u = v + 32768, low = table[u >> 7];
  return low + (((table[(u >> 7) + 1] - low) * (u & 127) + 64) >> 7);
}

/* Digit by digit, as not every processor divides; b is not 0. */
static SHARED uint32_t quotient(uint32_t a, uint32_t b) {
  uint32_t found = 0u, rest = 0u;
  for (int digit = 31; digit >= 0; digit--) {
    rest = rest << 1 | (a >> digit & 1u);
    found <<= 1;
    if (rest >= b) rest -= b, found |= 1u;
  }
  return found;
}

/* The square root of v < 2^48, rounded down. */
static SHARED uint32_t root(uint64_t v) {
  uint64_t found = 0u;
  for (uint64_t digit = (uint64_t)1 << 46; digit > 0u; digit >>= 2) {
    const uint64_t next = found + digit;
    found >>= 1;
    if (v >= next) v -= next, found += digit;
  }
  return (uint32_t)found;
}

/* a / b 2^up, rounded; of 0 / 0 it is 0. */
static SHARED int32_t divided(int32_t a, int32_t b, int up) {
  const uint32_t above = up < 0 ? (uint32_t)larger(a, -a) >> (up > -31 ? -up : 31) : (uint32_t)larger(a, -a) << up;
  const uint32_t below = (uint32_t)larger(b, -b);
  const uint32_t size = below > 0u ? quotient(above + (below >> 1), below) : above > 0u ? 32767u : 0u;
  const int32_t found = size < 32767u ? (int32_t)size : 32767;
  return (a < 0) != (b < 0) ? -found : found;
}

/* The root of v 2^up; below 0 it is 0. */
static SHARED int32_t rooted(int32_t v, int up) {
  const uint64_t inside = (uint64_t)larger(v, 0);
  return saturated((int32_t)root(up < 0 ? inside >> -up : inside << up));
}

/* v 2^-e = m 2^k with m between 1/2 and 1, where the table has the logarithm; log_2 is 2^8 log(2). */
static SHARED int32_t logarithm(const int16_t *table, int32_t v, int e, int32_t log_2) {
  int k = 15 - e;
  if (v <= 0) return -32768;
  for (; v < 16384; v *= 2) k--;
  return saturated(look(table, v) + ((k * log_2 + 128) >> 8));
}

/* y = (v - mean) / sqrt(variance + eps) for the first n of `all` elements; if not centred the mean counts as 0. eps is that
   of the sum of squares, root_all 2^-15 a root of `all`. y is filled up to a multiple of 16. */
static SHARED void norm(int32_t *y, const int16_t *v, unsigned n, unsigned all, int centred, uint64_t eps,
                        uint32_t root_all, int shift) {
  int32_t total = 0, centre = 0;
  uint64_t squares = eps;
  for (unsigned i = 0u; i < all; i++) total += v[i];
  if (centred) {
    const int32_t size = (int32_t)quotient((uint32_t)larger(total, -total) + all / 2u, all);
    centre = total < 0 ? -size : size;
  }
  for (unsigned i = 0u; i < all; i++) {
    const uint32_t d = (uint32_t)larger(v[i] - centre, centre - v[i]);
    squares += d * d;
  }
  if (squares == 0u) squares = 1u;
  for (; squares < (uint64_t)1 << 46; squares <<= 2) shift--;
  for (; squares >= (uint64_t)1 << 48; squares >>= 2) shift++;
  uint32_t rest = 1u << 23, inverse = 0u;
  const uint32_t below = root(squares);
  for (int digit = 0; digit < 15; digit++) {
    rest <<= 1, inverse <<= 1;
    if (rest >= below) rest -= below, inverse |= 1u;
  }
  const int32_t m = (int32_t)(inverse * root_all >> 15);
  for (unsigned i = 0u; i < (n + 15u) / 16u * 16u; i++) {
    const int32_t product = i < n ? (v[i] - centre) * m : 0;
    y[i] = saturated(shift > 0 ? ((product >> (shift - 1 < 30 ? shift - 1 : 30)) + 1) >> 1 : product * (1 << -shift));
  }
}
