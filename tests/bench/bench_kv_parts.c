/* bench_kv_parts: what one data frame of a KV link costs by itself, on one thread: packing blocks
 * into a message, its CRC, its seal, unpacking; beside a plain copy. Medians of the best of
 * several frames. */
#include "common/base/heap.h"
#include "common/instance/bus.h"
#include "common/instance/kv_seal.h"
#include "proto/crc32c.h"
#include "proto/kv_frame.h"
#include "tests/bench/machine.h"

enum { BLOCK = 64 << 10, BLOCKS = 32, BYTES = BLOCK * BLOCKS, ROUNDS = 7, TIMES = 20 };

static double gb_s(double best) {
    return BYTES / best * 1e-9;
}

int main(void) {
    struct kv_key key;
    uint8_t *pool = bench_memory((size_t)BYTES * 16), *to = bench_memory(BYTES);
    const uint8_t secret[KV_SEAL_SECRET_BYTES] = {1};
    struct kv_seal *out = NULL, *in = NULL;
    double v[6][ROUNDS];
    static const char *const names[] = {"copy", "pack", "crc", "seal", "unseal", "place"};
    heap_keep();
    kv_key_set(&key, "bench", 0, 0);
    memset(pool, 7, (size_t)BYTES * 16);
    memset(to, 7, BYTES);
    size_t n = kv_data_bytes(&key, BYTES) + KV_SEAL_BYTES - KV_CRC_BYTES;
    uint8_t *frame = bus_message_alloc(n);
    if (frame == NULL || kv_seal_create(&out, KV_SEALS, secret) != ERR_OK ||
        kv_seal_create(&in, KV_UNSEALS, secret) != ERR_OK)
        return 1;
    volatile uint32_t sink = 0;
    for (int r = 0; r < ROUNDS; r++) {
        double best[6];
        for (int i = 0; i < 6; i++) best[i] = 1e30;
        for (int k = 0; k < TIMES; k++) {
            const uint8_t *from = pool + (size_t)(k % 16) * BYTES;
            double t[7];
            struct kv_frame f;
            t[0] = bench_now();
            memcpy(to, from, BYTES);
            t[1] = bench_now();
            uint8_t *at = kv_data_begin(frame, &key, 0, 0, BLOCKS, BYTES);
            for (int i = 0; i < BLOCKS; i++)
                memcpy(at + (size_t)i * BLOCK, from + (size_t)((i * 7) % BLOCKS) * BLOCK, BLOCK);
            t[2] = bench_now();
            sink = sink + crc32c(0, frame, n);
            t[3] = bench_now();
            if (kv_seal_frame(out, frame, n) != ERR_OK) return 1;
            t[4] = bench_now();
            if (kv_unseal_frame(in, &f, frame, n) != ERR_OK) return 1;
            t[5] = bench_now();
            for (int i = 0; i < BLOCKS; i++)
                memcpy(pool + (size_t)(k % 16) * BYTES + (size_t)i * BLOCK, at + (size_t)i * BLOCK,
                       BLOCK);
            t[6] = bench_now();
            for (int i = 0; i < 6; i++)
                if (t[i + 1] - t[i] < best[i]) best[i] = t[i + 1] - t[i];
        }
        for (int i = 0; i < 6; i++) v[i][r] = gb_s(best[i]);
    }
    double copy = 0;
    for (int i = 0; i < 6; i++) {
        double m = bench_median(v[i], ROUNDS);
        if (i == 0) copy = m;
        printf("kv_part_%s %.1f GB/s %.2f of copy\n", names[i], m, m / copy);
    }
    bus_message_free(frame);
    kv_seal_destroy(&out);
    kv_seal_destroy(&in);
    return 0;
}
