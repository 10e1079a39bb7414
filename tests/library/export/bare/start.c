/* A Cortex-M without an operating system: start, print and stop by semihosting, count by SysTick. */
#include "model.h"

#include <stdarg.h>
#include <stddef.h>

extern uint32_t stack_top, data_from, data_start, data_end, bss_start, bss_end;
int test_main(void);
void reset(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (const void *)reset};

static long call(long number, const void *argument) {
  register long r0 __asm__("r0") = number;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static void put_hex(uint32_t value) {
  char text[10];
  for (int i = 0; i < 8; i++) text[i] = "0123456789abcdef"[(value >> (28 - 4 * i)) & 15u];
  text[8] = '\n', text[9] = 0;
  call(4, text);
}

/* All that the self-test prints is "%s %08lx\n". */
int printf(const char *format, ...) {
  va_list list;
  va_start(list, format);
  call(4, va_arg(list, const char *));
  call(4, " ");
  put_hex((uint32_t)va_arg(list, unsigned long));
  va_end(list);
  return 0;
}

void *memcpy(void *to, const void *from, size_t n) {
  uint32_t *t = to;
  const uint32_t *f = from;
  if ((((uintptr_t)to | (uintptr_t)from) & 3u) == 0u) /* else a Cortex-M0 cannot read words */
    for (; n >= 4; n -= 4) *t++ = *f++;
  for (unsigned i = 0; i < n; i++) ((char *)t)[i] = ((const char *)f)[i];
  return to;
}

void *memset(void *to, int c, size_t n) {
  for (char *t = to; n > 0; n--) *t++ = (char)c;
  return to;
}

static model_state s;
static INPUT x[MODEL_INPUTS];
static OUTPUT y[MODEL_OUTPUTS];

/* Bytes of one stream: its state, and the deepest stack of a step. */
static uint32_t room(void) {
  uint32_t *here, *low;
  __asm__ volatile("mov %0, sp" : "=r"(here));
  for (low = &bss_end; low < here; low++) *(volatile uint32_t *)low = 0x5a5a5a5au;
  model_reset(&s);
  model_step(&s, x, y);
  for (low = &bss_end; *(volatile uint32_t *)low == 0x5a5a5a5au;) low++;
  return (uint32_t)((char *)here - (char *)low) + sizeof s;
}

/* Ticks of SysTick for ten steps. */
static uint32_t count(void) {
  volatile uint32_t *tick = (volatile uint32_t *)0xE000E010;
  model_reset(&s);
  tick[1] = 0xffffff, tick[2] = 0, tick[0] = 5;
  while (tick[2] == 0) {}
  const uint32_t before = tick[2];
  for (int i = 0; i < 10; i++) model_step(&s, x, y);
  return (before - tick[2]) & 0xffffff;
}

void reset(void) {
  uint32_t *from = &data_from;
  *(volatile uint32_t *)0xE000ED88 |= 0xf00000; /* the FPU, where there is one */
  for (uint32_t *to = &data_start; to < &data_end;) *to++ = *from++;
  for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;
  test_main();
  put_hex(count());
  put_hex(room());
  call(0x18, (void *)0x20026);
  for (;;) {}
}
