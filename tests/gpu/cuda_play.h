/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_play.h - what a played CUDA runtime does and has seen (cuda_play.c).
 *
 * Device 1 of two is the one that is used, so that a mistake for device 0 shows. A call that needs
 * a context and has none fails the test.
 */
#ifndef KVT_TESTS_CUDA_PLAY_H
#define KVT_TESTS_CUDA_PLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy_kernel.h"
#include "gather_kernel.h"

enum {
    PLAY_HOLDS_MAX = 64,
};

struct cuda_play {
    uint32_t call_count;       /* Of the functions that can fail. */
    uint32_t fail_call;        /* 0: none. */
    cudaError_t fail_with;     /* Sticky when it loses the device... */
    bool is_passing;           /* ...unless the device lives on. */
    uint32_t after_loss_count; /* But of what a lost device is asked to let go of. */
    bool is_lost;
    bool is_stream_captured;
    bool is_malloc_odd; /* It is not aligned as it should be. */
    bool is_busy;       /* The next query of an event says so. */
    bool is_stuck;      /* Every query says so. */
    bool has_no_words;  /* The driver cannot let a stream wait for one. */
    bool is_word_moved; /* The device has other addresses for the host's memory. */
    bool has_peer;      /* Device 0 is in reach of device 1. */
    bool is_kernel_missing;
    bool has_no_bytes; /* Copies are counted only. */

    int depth; /* Of pushed contexts. */
    enum cudaStreamCaptureMode capture_mode;
    int holds;                           /* Whatever must be given back. */
    int pin_count;                       /* Of them, registrations of host memory... */
    const uint8_t *pins[PLAY_HOLDS_MAX]; /* ...and where they begin; NULL: none. */
    uint32_t sync_count;                 /* Waits for a stream. */
    uint32_t look_count;                 /* Of a stream, whether it is idle. */
    void *memory[PLAY_HOLDS_MAX];
    size_t sizes[PLAY_HOLDS_MAX];
    enum cudaMemoryType foreign_type; /* Of what was given. */
    bool is_pinned_already;           /* All host memory is, by somebody else. */
    const void *pinned_end;           /* Not NULL: only below this. */
    const void *hole;                 /* Not NULL: not the 2 MiB from this on. */

    bool has_no_sharing;    /* The device says so. */
    bool is_read_refused;   /* Access to read alone: memory is to be read and written. */
    bool is_import_refused; /* The descriptor stands for nothing. */
    size_t granularity;     /* Of memory that is shared; 0: 2 MiB. */
    uint32_t access;        /* The last that was set. */
    uint64_t waited;        /* The last value that a stream waits for. */
    int lowest_descriptor;  /* The lowest that an open of the device could have got. */

    uint32_t single_count; /* Calls of cudaMemcpyAsync(). */
    uint32_t batch_count;
    size_t run_count;  /* Of the last batch. */
    uint64_t now_ns;   /* What queueing took, and waiting, as on an H200 in calls of 16 MiB. */
    uint64_t until_ns; /* The device will have done all that is queued. */
    uint32_t launch_count;
    uint32_t chunk_count; /* Of the last launch, as the next two. */
    uint32_t chunk_bytes_max;
    struct copy_grid grid;
};

extern struct cuda_play play;

/* play_begin - a new play. What a lost device held is the driver's: here it ends with the play. */
void play_begin(void);
/* play_judge - the thread is as it was; once the device is lost CUDA is left alone, else all was
 * given back. */
void play_judge(void);

/* play_call - a call that can fail is made; it needs the device's context, or there is none. */
cudaError_t play_call(bool needs_context);
#define PLAY_TRY(needs_context)                        \
    do {                                               \
        cudaError_t error_ = play_call(needs_context); \
        if (error_ != cudaSuccess)                     \
            return error_;                             \
    } while (0)

/* play_share_find - a function of the driver for several processes. False: it is none. */
bool play_share_find(const char *name, void **function_out);

/* play_hold - memory of device 1. play_hold_end - it is given back; it must have been given. */
void *play_hold(size_t size);
cudaError_t play_hold_end(const void *memory);

#endif /* KVT_TESTS_CUDA_PLAY_H */
