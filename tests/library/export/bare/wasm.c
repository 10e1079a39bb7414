/* The self-test for a host without a C library: printf's hash, or 0 if it failed, is returned. */
#include "model.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static unsigned long told;

static int note(const char *format, const char *status, unsigned long hash) {
  (void)format;
  told = status[0] == 'o' ? hash : 0;
  return 0;
}

#include "model.c"
#undef memcpy
#undef memset

void *memcpy(void *to, const void *from, size_t n) {
  char *t = to;
  for (const char *f = from; n > 0; n--) *t++ = *f++;
  return to;
}

void *memset(void *to, int c, size_t n) {
  for (char *t = to; n > 0; n--) *t++ = (char)c;
  return to;
}

#define main test_main
#define printf note
#include "model_test.c"

uint32_t run(void) {
  test_main();
  return (uint32_t)told;
}
