/* The C interface of the native engine: plain pointers, sizes and integers.
 *
 * A program (one per unit and size) is made once from the integers of
 * onegate.lowering.program.Program.encode, checked, and then run over whole sequences. Nothing here
 * allocates a result, prints or aborts: a function that can fail returns non-zero and leaves a
 * message of at most `size` bytes in `message`. A run that its host ends returns 2, without one.
 *
 * Sizes: T steps, B rows (sequences), D directions (the second runs backward in time), d the width of
 * x, which is the first input; further ones have widths of their own;
 * S the sum of the states' sizes, n the size of the first state, which is the output.
 * All tensors are float (bits = 32) or double (bits = 64), or stored in half precision where a field says
 * so (with 32 bits, in which all is computed); inner strides are 1; strides count elements. Rows never share memory with one another in anything that is written.
 */
#ifndef ONEGATE_H
#define ONEGATE_H

#include <stdint.h>

#if defined(_WIN32)
#define OG_EXPORT __declspec(dllexport)
#else
#define OG_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct og_program og_program;
typedef struct og_stream og_stream;

/* What a host that has other threads to run, and signals to handle, is told by the calling thread.
 * An interpreter gives up its lock in `leave` and takes it in `enter`. */
typedef struct {
  void* (*leave)(void);      /* the work begins, or goes on */
  void (*enter)(void* left); /* it ends, or rests; left: what `leave` returned */
  int32_t (*check)(void);    /* or null; called while it rests, several times a second: non-zero
                                ends the run, whose results are then incomplete */
} og_host;

/* How the numbers of a tensor are stored. */
enum { OG_AS_COMPUTED = 0, OG_BFLOAT16 = 1, OG_FLOAT16 = 2 };

/* A further input, (T, B, its width); a stride of 0 repeats it. */
typedef struct {
  const void* data;
  int64_t step, row;
  int64_t bytes; /* not 0: a mask, of which each number is a byte, 0 or 1 */
} og_input;

typedef struct {
  const og_program* program;
  int32_t bits;       /* 32 or 64 */
  int32_t directions; /* 1 or 2 */
  int32_t threads;    /* at least 1; at most this many are used */
  int32_t split;      /* 0: chosen by cost, 1: rows, 2: columns */
  int64_t steps;      /* T >= 1 */
  int64_t rows;       /* B >= 1 */
  const int64_t* lengths;   /* (B), 1..T each, or null: all T */
  const void* x;            /* (T, B, d) */
  int64_t x_step, x_row;
  const void* start;        /* (D, B, S), without gaps */
  void* out;                /* (T, B, D * n), or (T, B, D * S); read by the backward pass if it is stored
                               as computed, and not needed there if it is not */
  int64_t out_step, out_row;
  void* last;               /* (D, B, S), without gaps */
  void* kept;               /* og_kept_size elements, or null: nothing is kept */
  const void* const* parameters; /* D times all parameters, each without gaps */
  const og_host* host;      /* or null */
  const og_input* extras;   /* the program's inputs after x, or null: it has none */
  const uint8_t* reset;     /* (T, B), or null; where it is not 0 the states are `initial` before the
                               step, in one direction only */
  int64_t reset_step, reset_row;
  const void* initial;      /* (S), if there is a reset */
  int32_t all_states;       /* not 0: the outputs are all states side by side */
  int32_t recompute;        /* not 0: only states are kept; the backward pass computes the rest */
  const void* const* added; /* as parameters, or null: what is added to each that is a vector, or null */
  int32_t x_stored;         /* OG_AS_COMPUTED or another */
  int32_t start_stored;     /* of start and its gradient */
  int32_t parameters_stored; /* of parameters, what is added to them, and their gradients */
  int32_t out_stored;       /* of out and its gradient */
  int32_t last_stored;      /* of last and its gradient */
} og_forward;

typedef struct {
  og_forward forward;       /* as in the forward pass; `last` is not used */
  const void* grad_out;     /* (T, B, D * n), or null: zero */
  int64_t grad_out_step, grad_out_row;
  const void* grad_last;    /* (D, B, S), or null: zero */
  void* grad_x;             /* (D, T, B, d) without gaps, or null: not wanted */
  void* grad_start;         /* (D, B, S) */
  void* const* grad_parameters; /* as parameters; every element is written */
  void* const* grad_extras; /* (D, T, B, its width) each, or null where it is not wanted */
  void* grad_initial;       /* (B, S), if there is a reset; is added to */
  int32_t grad_x_stored;
} og_backward;

OG_EXPORT int32_t og_format(void);
/* The size of an og_backward, by which a host sees that it knows the same calls. */
OG_EXPORT int64_t og_call_size(void);
OG_EXPORT const char* og_instruction_set(void);
/* The name of an operation, how many operands it has, and which of them (bits 0 to 2), or whether the
 * result (bit 3), are one number for each row; null where the opcode is none. */
OG_EXPORT const char* og_operation(int32_t opcode, int32_t* operands, int32_t* narrow);

/* Null on error. Programs are immutable and may be shared between threads. */
OG_EXPORT og_program* og_program_new(const int64_t* code, int64_t length, const double* constants,
                                     int64_t constant_count, char* message, int64_t size);
OG_EXPORT void og_program_free(og_program* program);

/* Elements (of `bits`) that the forward pass keeps for the backward pass; -1: more than a run can have. With
 * `recompute` they are S - n for each direction, step and row. Where out is not stored as computed, the states
 * in it are kept as well, n more for each. */
OG_EXPORT int64_t og_kept_size(const og_program* program, int64_t directions, int64_t steps,
                               int64_t rows);

OG_EXPORT int32_t og_run_forward(const og_forward* call, char* message, int64_t size);
OG_EXPORT int32_t og_run_backward(const og_backward* call, char* message, int64_t size);

/* Fills `count` numbers with 0, where a hash of the seed's words and the place is at most `last_zero`,
 * and `other` elsewhere. bits: of a number; 8 for bytes, which are 0 or 1. */
OG_EXPORT void og_fill_mask(void* to, int32_t bits, int64_t count, uint32_t first, uint32_t second,
                            uint32_t last_zero, double other);

/* A stream runs one step at a time on one thread, with the memory of `call`: one step, one
 * direction, nothing kept, no lengths. Each step reads x and start, and writes out and last, which
 * may be the same memory as start. Parameters are read here alone. Null on error. */
OG_EXPORT og_stream* og_stream_new(const og_forward* call, char* message, int64_t size);
OG_EXPORT void og_stream_free(og_stream* stream);
/* A step of each, one after the other. */
OG_EXPORT void og_stream_step(og_stream* const* streams, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
