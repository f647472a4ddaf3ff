/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - encodes and decodes parts, chunk by chunk.
 *
 * Owns      contexts of zstd and the scratch of one chunk, all in one piece of memory: what is
 *           taken by codec_open() is enough for ever, so that neither direction can lack memory.
 * Not here  how numbers become planes (codec_planes.h, codec_pairs.h).
 * Format    tiers/FORMAT.md section 3.5.
 *
 * Invariants
 *   (1) codec_encode() writes below the end of its limit, which is below `size`.
 *   (2) codec_decode() reads a byte only after it has proved that it is one of `stored`.
 *
 * A chunk is small enough to stay in a processor's cache from one pass over it to the next, and
 * large enough that its Huffman table and the set-up of a frame cost little (measured: 64 KiB to
 * 1 MiB of numbers; from 512 KiB on nothing is gained).
 */
#define ZSTD_STATIC_LINKING_ONLY
#include <assert.h>

#include <zstd.h>
#include <zstd_errors.h>

#include "bytes.h"
#include "codec.h"
#include "codec_pairs.h"
#include "codec_planes.h"
#include "failure.h"
#include "try.h"

enum {
    CHUNK_NUMBERS = 1 << 18,

    /* The head of a part. */
    PART_AT_LENGTH = 0,
    PART_AT_CODEC = 4,
    PART_AT_RESERVED = 5,
    PART_HEAD_BYTES = 8,

    /* The head of a chunk. */
    CHUNK_AT_FRAME = 0,
    CHUNK_AT_ESCAPES = 4,
    CHUNK_AT_FORM = 6,
    CHUNK_AT_BASE = 7,
    CHUNK_HEAD_BYTES = 8,

    SAVED_PERCENT_MIN = 5,
    MEMORY_ALIGN = 64,
};

/* Stored on disk: never renumbered. */
enum chunk_form {
    FORM_BYTES = 0, /* The frame holds a byte for each number. */
    FORM_PAIRS = 1, /* The frame holds pairs of codes of exponents: read only. */
    FORM_TOPS = 2,  /* The frame holds pairs of codes of tops. */
};

static_assert(CHUNK_NUMBERS / 16 <= UINT16_MAX, "escapes of a chunk are counted in 16 bits");
static_assert(CHUNK_NUMBERS % PAIRS_GROUP == 0, "only the last chunk has an unfinished group");

/* What is in a chunk: its head, its sides (rests, and of tops signs), escapes, a frame. */
struct chunk {
    enum chunk_form form;
    uint8_t base;
    size_t sides_bytes;
    size_t escape_count;
    size_t plane_bytes; /* What the frame becomes. */
};

/* One piece of memory: this, then what the pointers point to. */
struct codec {
    struct kvt_env env;
    size_t memory_bytes;
    uint64_t part_bytes_max;
    uint8_t *plane;
    uint8_t *escapes;
    ZSTD_CCtx *encoder;
    ZSTD_DCtx *decoder;
};

/* --- Opening ---------------------------------------------------------------------------------- */

/*
 * Hardly any matches: the step from one try to the next (the target length) passes over a whole
 * block, and the tables are as small as they may be. With matches, split data becomes larger.
 */
static const ZSTD_compressionParameters parameters = {
    .windowLog = 17,
    .chainLog = 6,
    .hashLog = 6,
    .searchLog = 1,
    .minMatch = 7,
    .targetLength = ZSTD_TARGETLENGTH_MAX,
    .strategy = ZSTD_fast,
};

static bool
encoder_set(ZSTD_CCtx *encoder)
{
    const struct {
        ZSTD_cParameter name;
        int value;
    } settings[] = {
        {ZSTD_c_windowLog, (int)parameters.windowLog}, {ZSTD_c_chainLog, (int)parameters.chainLog},
        {ZSTD_c_hashLog, (int)parameters.hashLog}, {ZSTD_c_searchLog, (int)parameters.searchLog},
        {ZSTD_c_minMatch, (int)parameters.minMatch},
        {ZSTD_c_targetLength, (int)parameters.targetLength},
        {ZSTD_c_strategy, (int)parameters.strategy},
        /* By itself zstd leaves the literals of so fast a search as they are. */
        {ZSTD_c_literalCompressionMode, ZSTD_ps_enable},
        {ZSTD_c_contentSizeFlag, 0}, /* The heads have the lengths. */
    };

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (ZSTD_isError(ZSTD_CCtx_setParameter(encoder, settings[i].name, settings[i].value)))
            return false;
    }
    return true;
}

enum kvt_status
codec_open(const struct kvt_env *env, uint64_t part_bytes_max, struct codec **codec_out)
{
    uint64_t count = part_bytes_max / 2 < CHUNK_NUMBERS ? part_bytes_max / 2 : CHUNK_NUMBERS;
    size_t plane_bytes = (size_t)round_up(count + PAIRS_GROUP, MEMORY_ALIGN);
    size_t escapes_bytes = round_up(pairs_escapes_max((size_t)count) + PAIRS_GROUP, MEMORY_ALIGN);
    size_t encoder_bytes = round_up(ZSTD_estimateCCtxSize_usingCParams(parameters), MEMORY_ALIGN);
    size_t decoder_bytes = round_up(ZSTD_estimateDCtxSize(), MEMORY_ALIGN);
    size_t self_bytes = round_up(sizeof(struct codec), MEMORY_ALIGN);
    size_t memory_bytes = self_bytes + plane_bytes + escapes_bytes + encoder_bytes + decoder_bytes;
    uint8_t *memory = NULL;
    struct codec *codec = NULL;

    *codec_out = NULL;
    memory = env_take(env, memory_bytes);
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a codec of %zu bytes", memory_bytes);
    codec = (struct codec *)(void *)memory;
    codec->env = *env;
    codec->memory_bytes = memory_bytes;
    codec->part_bytes_max = part_bytes_max < UINT32_MAX ? part_bytes_max : UINT32_MAX;
    codec->plane = memory + self_bytes;
    codec->escapes = codec->plane + plane_bytes;
    codec->encoder = ZSTD_initStaticCCtx(codec->escapes + escapes_bytes, encoder_bytes);
    codec->decoder =
        ZSTD_initStaticDCtx(codec->escapes + escapes_bytes + encoder_bytes, decoder_bytes);
    if (codec->encoder == NULL || codec->decoder == NULL || !encoder_set(codec->encoder)) {
        codec_close(codec);
        return failure_set(
            KVT_E_UNSUPPORTED, 0, "libzstd %s lacks what codecs need", ZSTD_versionString());
    }
    *codec_out = codec;
    return KVT_OK;
}

void
codec_close(struct codec *codec)
{
    struct kvt_env env;

    if (codec == NULL)
        return;
    env = codec->env;
    env_put(&env, codec, codec->memory_bytes);
}

/* --- Encoding --------------------------------------------------------------------------------- */

uint64_t
codec_bound(uint64_t size)
{
    /* What would become larger is left as it is. */
    return size;
}

/* Where the next encoded byte goes, and how many may still be written. */
struct writer {
    uint8_t *at;
    uint64_t left;
};

static void
writer_skip(struct writer *writer, uint64_t count)
{
    writer->at += count;
    writer->left -= count;
}

/* Append what zstd makes of `size` bytes of the scratch; false: no room. */
static bool
frame_write(struct codec *codec, size_t size, struct writer *writer, uint32_t *frame_bytes_out)
{
    size_t result =
        ZSTD_compress2(codec->encoder, writer->at, (size_t)writer->left, codec->plane, size);

    if (ZSTD_isError(result))
        return false;
    *frame_bytes_out = (uint32_t)result;
    writer_skip(writer, result);
    return true;
}

/* Numbers to codes of tops in the scratch, escapes, and lows and signs; false: no room, or no
 * window. */
static bool
chunk_pair(struct codec *codec, const uint8_t *source, size_t count, const struct writer *writer,
    struct chunk *chunk)
{
    struct pairs_target target = {
        .codes = codec->plane,
        .lows = writer->at,
        .signs = writer->at + count,
        .escapes = codec->escapes,
    };

    chunk->form = FORM_TOPS;
    chunk->sides_bytes = count + pairs_signs_bytes(count);
    chunk->plane_bytes = pairs_bytes(count);
    if (writer->left < chunk->sides_bytes || !pairs_window(source, count, &target.base) ||
        !pairs_pack(&target, source, count, &chunk->escape_count))
        return false;
    chunk->base = target.base;
    return true;
}

/* Numbers to bytes in the scratch, and rests; false: no room. */
static bool
chunk_split(struct codec *codec, enum codec_id id, const uint8_t *source, size_t count,
    const struct writer *writer, struct chunk *chunk)
{
    *chunk = (struct chunk){.form = FORM_BYTES, .sides_bytes = count, .plane_bytes = count};
    if (writer->left < count)
        return false;
    planes_split(id, source, count, codec->plane, writer->at);
    return true;
}

/* Append a chunk; false: no room. */
static bool
chunk_encode(struct codec *codec, enum codec_id id, const uint8_t *source, size_t count,
    struct writer *writer)
{
    uint8_t *head = writer->at;
    struct chunk chunk = {0};
    uint32_t frame_bytes = 0;

    if (writer->left < CHUNK_HEAD_BYTES)
        return false;
    writer_skip(writer, CHUNK_HEAD_BYTES);
    if ((id != CODEC_BF16 || !chunk_pair(codec, source, count, writer, &chunk)) &&
        !chunk_split(codec, id, source, count, writer, &chunk))
        return false;
    writer_skip(writer, chunk.sides_bytes);
    if (writer->left < chunk.escape_count)
        return false;
    memcpy(writer->at, codec->escapes, chunk.escape_count);
    writer_skip(writer, chunk.escape_count);
    if (!frame_write(codec, chunk.plane_bytes, writer, &frame_bytes))
        return false;
    put_u32(head + CHUNK_AT_FRAME, frame_bytes);
    put_u16(head + CHUNK_AT_ESCAPES, (uint16_t)chunk.escape_count);
    head[CHUNK_AT_FORM] = (uint8_t)chunk.form;
    head[CHUNK_AT_BASE] = chunk.base;
    return true;
}

/* The whole part; false: it does not become smaller than the writer's limit. */
static bool
part_encode(struct codec *codec, enum codec_id id, const uint8_t *source, uint64_t size,
    struct writer *writer)
{
    uint64_t number_count = size / 2;
    uint8_t *head = writer->at;

    if (writer->left < PART_HEAD_BYTES + number_count + size % 2)
        return false;
    put_u32(head + PART_AT_LENGTH, (uint32_t)size);
    head[PART_AT_CODEC] = (uint8_t)id;
    memset(head + PART_AT_RESERVED, 0, PART_HEAD_BYTES - PART_AT_RESERVED);
    writer_skip(writer, PART_HEAD_BYTES);
    writer->left -= size % 2;
    for (uint64_t i = 0; i < number_count; i += CHUNK_NUMBERS) {
        uint64_t left = number_count - i;
        size_t count = left < CHUNK_NUMBERS ? (size_t)left : CHUNK_NUMBERS;

        /* Data that is no KV cache: the rests alone would pass the limit. */
        if (writer->left < left || !chunk_encode(codec, id, source + 2 * i, count, writer))
            return false;
    }
    if (size % 2 != 0)
        *writer->at++ = source[size - 1];
    return true;
}

enum codec_id
codec_encode(struct codec *codec, enum codec_id id, const void *source, uint64_t size, void *target,
    uint64_t *stored_out)
{
    uint64_t saved_min =
        size / 100 * SAVED_PERCENT_MIN + (size % 100 * SAVED_PERCENT_MIN + 99) / 100;
    struct writer writer = {.at = target, .left = size - saved_min};
    bool is_known = id == CODEC_BF16 || id == CODEC_FP16;

    KVT_ASSERT(size <= codec->part_bytes_max);
    if (is_known && size <= codec->part_bytes_max &&
        part_encode(codec, id, source, size, &writer)) {
        *stored_out = (uint64_t)(writer.at - (uint8_t *)target);
        return id;
    }
    memcpy(target, source, size);
    *stored_out = size;
    return CODEC_RAW;
}

/* --- Decoding --------------------------------------------------------------------------------- */

/* The next byte that was not looked at, and how many there are. */
struct reader {
    const uint8_t *at;
    uint64_t left;
};

static enum kvt_status
part_corrupt(const char *what)
{
    return failure_set(KVT_E_CORRUPT, 0, "encoded part: %s", what);
}

/* A frame of `frame_bytes` bytes that must give `size` bytes of the scratch. */
static enum kvt_status
frame_read(struct codec *codec, const uint8_t *frame, size_t frame_bytes, size_t size)
{
    size_t result = ZSTD_decompressDCtx(codec->decoder, codec->plane, size, frame, frame_bytes);

    if (ZSTD_isError(result))
        return failure_set(KVT_E_CORRUPT, (int)ZSTD_getErrorCode(result),
            "encoded part: a frame of %zu bytes: %s", frame_bytes, ZSTD_getErrorName(result));
    if (result != size)
        return failure_set(
            KVT_E_CORRUPT, 0, "encoded part: a frame gives %zu bytes, not %zu", result, size);
    /* zstd takes several frames for the bytes of all. */
    if (ZSTD_findFrameCompressedSize(frame, frame_bytes) != frame_bytes)
        return part_corrupt("there is more than a frame in its place");
    return KVT_OK;
}

/* What the head of a chunk of `count` numbers says. */
static enum kvt_status
chunk_read(enum codec_id id, const uint8_t *head, size_t count, struct chunk *chunk_out)
{
    struct chunk chunk = {
        .base = head[CHUNK_AT_BASE],
        .sides_bytes = count,
        .escape_count = get_u16(head + CHUNK_AT_ESCAPES),
        .plane_bytes = count,
    };
    size_t escapes_max = pairs_escapes_max(count);
    uint32_t base_max = 0;

    switch (head[CHUNK_AT_FORM]) {
    case FORM_BYTES:
        chunk.form = FORM_BYTES;
        escapes_max = 0;
        break;
    case FORM_PAIRS:
        chunk.form = FORM_PAIRS;
        base_max = PAIRS_EXPONENT_BASE_MAX;
        break;
    case FORM_TOPS:
        chunk.form = FORM_TOPS;
        chunk.sides_bytes += pairs_signs_bytes(count);
        base_max = PAIRS_TOP_BASE_MAX;
        break;
    default:
        return part_corrupt("a chunk of unknown form");
    }
    if (chunk.form != FORM_BYTES) {
        chunk.plane_bytes = pairs_bytes(count);
        if (id != CODEC_BF16)
            return part_corrupt("pairs of numbers that are not bf16");
    }
    if (chunk.escape_count > escapes_max || chunk.base > base_max)
        return part_corrupt("the head of a chunk that cannot be");
    *chunk_out = chunk;
    return KVT_OK;
}

/* `count` numbers to `target` from the next chunk. */
static enum kvt_status
chunk_decode(
    struct codec *codec, enum codec_id id, struct reader *reader, uint8_t *target, size_t count)
{
    const uint8_t *head = reader->at, *sides = head + CHUNK_HEAD_BYTES, *frame = NULL;
    struct pairs_source pairs = {.codes = codec->plane, .rests = sides};
    struct chunk chunk = {0};
    uint32_t frame_bytes = 0;

    if (reader->left < CHUNK_HEAD_BYTES)
        return part_corrupt("it ends inside the head of a chunk");
    KVT_TRY(chunk_read(id, head, count, &chunk));
    frame_bytes = get_u32(head + CHUNK_AT_FRAME);
    reader->left -= CHUNK_HEAD_BYTES;
    if (reader->left < chunk.sides_bytes + chunk.escape_count)
        return part_corrupt("it ends inside a chunk");
    reader->left -= chunk.sides_bytes + chunk.escape_count;
    if (reader->left < frame_bytes)
        return part_corrupt("it ends inside a frame");
    reader->left -= frame_bytes;
    frame = sides + chunk.sides_bytes + chunk.escape_count;
    reader->at = frame + frame_bytes;
    KVT_TRY(frame_read(codec, frame, frame_bytes, chunk.plane_bytes));
    if (chunk.form == FORM_BYTES) {
        planes_join(id, target, count, codec->plane, sides);
        return KVT_OK;
    }
    pairs.base = chunk.base;
    pairs.signs = chunk.form == FORM_TOPS ? sides + count : NULL;
    pairs.escapes = sides + chunk.sides_bytes;
    pairs.escape_count = chunk.escape_count;
    return pairs_unpack(&pairs, target, count) ? KVT_OK : part_corrupt("pairs that cannot be");
}

static enum kvt_status
part_decode(
    struct codec *codec, enum codec_id id, struct reader *reader, uint8_t *target, uint64_t size)
{
    const uint8_t *head = reader->at;
    uint64_t number_count = size / 2;

    if (reader->left < PART_HEAD_BYTES)
        return part_corrupt("it ends inside its head");
    if (size > codec->part_bytes_max || get_u32(head + PART_AT_LENGTH) != size)
        return failure_set(KVT_E_CORRUPT, 0, "encoded part: it has %u bytes, not %llu",
            get_u32(head + PART_AT_LENGTH), (unsigned long long)size);
    if (head[PART_AT_CODEC] != id ||
        !bytes_are_zero(head + PART_AT_RESERVED, PART_HEAD_BYTES - PART_AT_RESERVED))
        return part_corrupt("it is of another codec");
    reader->at += PART_HEAD_BYTES;
    reader->left -= PART_HEAD_BYTES;
    for (uint64_t i = 0; i < number_count; i += CHUNK_NUMBERS) {
        uint64_t left = number_count - i;
        size_t count = left < CHUNK_NUMBERS ? (size_t)left : CHUNK_NUMBERS;

        KVT_TRY(chunk_decode(codec, id, reader, target + 2 * i, count));
    }
    if (reader->left != size % 2)
        return part_corrupt("it does not end with its last chunk");
    if (size % 2 != 0)
        target[size - 1] = reader->at[0];
    return KVT_OK;
}

enum kvt_status
codec_decode(struct codec *codec, uint32_t id, const void *source, uint64_t stored, void *target,
    uint64_t size)
{
    struct reader reader = {.at = source, .left = stored};

    if (id == CODEC_BF16 || id == CODEC_FP16)
        return part_decode(codec, (enum codec_id)id, &reader, target, size);
    if (id != CODEC_RAW)
        return failure_set(KVT_E_FORMAT, 0, "a part of the unknown codec %u", id);
    if (stored != size)
        return failure_set(KVT_E_CORRUPT, 0, "a part as it was given has %llu bytes, not %llu",
            (unsigned long long)stored, (unsigned long long)size);
    memcpy(target, source, size);
    return KVT_OK;
}

const char *
codec_zstd_version(void)
{
    return ZSTD_versionString();
}
