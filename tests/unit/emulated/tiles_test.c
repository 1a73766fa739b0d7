/* Goal: the emulated tiles are those of Intel's SDM, and products of the set "amx" hold tiles only
 * while they run, and use them for what they should. Method: small products by hand and by plain
 * loops; then the emulation's own counts around the set's products. The set's numbers are checked
 * in kernels_amx_test.c, kernels_test.c and kernels_quant_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/engine/half.h"
#include "common/engine/kernels.h"
#include "tests/unit/emulated/tiles.h"

struct config {
    uint8_t palette, start_row, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

/* 2 rows by 3 columns over 4 pairs (or fours) of k: tiles 0, 1 and 2. */
static struct config small(void) {
    return (struct config){.palette = 1, .bytes = {12, 16, 12}, .rows = {2, 2, 4}};
}

/* c = was + a * b */
static void bf16_add(float c[2][3], const float was[2][3], const uint16_t a[2][8],
                     const uint16_t b[4][3][2]) {
    struct config conf = small();
    emu_tile_loadconfig(&conf);
    emu_tile_load(0, was, sizeof(was[0]));
    emu_tile_load(1, a, sizeof(a[0]));
    emu_tile_load(2, b, sizeof(b[0]));
    emu_tile_dpbf16ps(0, 1, 2);
    emu_tile_store(0, c, sizeof(c[0]));
    emu_tile_release();
}

static void bf16_product(void **state) {
    uint16_t a[2][8], b[4][3][2];
    float c[2][3], was[2][3];
    (void)state;
    for (int i = 0; i < 16; i++) a[i / 8][i % 8] = bf16_of_f32((float)(i - 5));
    for (int i = 0; i < 24; i++) b[i / 6][i / 2 % 3][i % 2] = bf16_of_f32((float)(7 - i) * 0.5f);
    for (int i = 0; i < 6; i++) was[i / 3][i % 3] = (float)i;
    bf16_add(c, was, a, b);
    for (int m = 0; m < 2; m++) {
        for (int n = 0; n < 3; n++) {
            float want = was[m][n];
            for (int k = 0; k < 8; k++)
                want += f32_of_bf16(a[m][k]) * f32_of_bf16(b[k / 2][n][k % 2]);
            assert_true(c[m][n] == want); /* small numbers: exact in any order */
        }
    }
}

/* 1 + 2^-24 + 2^-24: the two small ones meet first when even and odd k are summed apart; one by one
 * each is lost. */
static void bf16_order(void **state) {
    const uint16_t x = bf16_of_f32(1), tiny = bf16_of_f32(0x1p-24f);
    const uint16_t a[2][8] = {{x, x, x, x, x, x, x, x}, {0}};
    uint16_t b[4][3][2] = {0};
    float c[2][3], was[2][3] = {{1, 1, 1}, {0}};
    (void)state;
    b[0][0][0] = b[1][0][0] = tiny; /* even and even */
    b[0][1][0] = b[3][1][1] = tiny; /* even and odd */
    b[0][2][0] = tiny;              /* alone */
    bf16_add(c, was, a, b);
    assert_true(c[0][0] == 1 + 0x1p-23f && c[0][1] == 1 + 0x1p-23f && c[0][2] == 1);
}

static void byte_products(void **state) {
    uint8_t a[2][16], b[4][3][4];
    struct config conf = small();
    (void)state;
    for (int i = 0; i < 32; i++) a[i / 16][i % 16] = (uint8_t)(i * 37 + 100);
    for (int i = 0; i < 48; i++) b[i / 12][i / 4 % 3][i % 4] = (uint8_t)(i * 91 + 13);
    for (int kind = 0; kind < 4; kind++) {
        const bool a_signed = kind % 2 != 0, b_signed = kind / 2 != 0;
        int32_t c[2][3];
        emu_tile_loadconfig(&conf);
        emu_tile_zero(0);
        emu_tile_load(1, a, sizeof(a[0]));
        emu_tile_load(2, b, sizeof(b[0]));
        emu_tile_dpb(0, 1, a_signed, 2, b_signed);
        emu_tile_store(0, c, sizeof(c[0]));
        for (int m = 0; m < 2; m++) {
            for (int n = 0; n < 3; n++) {
                int want = 0;
                for (int k = 0; k < 16; k++)
                    want += (a_signed ? (int8_t)a[m][k] : a[m][k]) *
                            (b_signed ? (int8_t)b[k / 4][n][k % 4] : b[k / 4][n][k % 4]);
                assert_int_equal(c[m][n], want);
            }
        }
        emu_tile_release();
    }
}

static void misuse(int kind) {
    struct config conf = small();
    uint8_t line[64] = {0};
    if (kind == 0) emu_tile_zero(0); /* nothing configured */
    if (kind == 1) conf.palette = 2;
    if (kind == 2) conf.rows[1] = 17;
    if (kind == 3) conf.bytes[2] = 65;
    if (kind == 4) conf.rows[3] = 1; /* and no bytes */
    if (kind == 5) conf.zero[3] = 1;
    if (kind == 6) conf.rows[0] = 1; /* of a product's two rows */
    if (kind == 7) conf.bytes[1] = 12;
    emu_tile_loadconfig(&conf);
    if (kind == 8) emu_tile_load(5, line, 1);
    if (kind == 9) emu_tile_dpbf16ps(0, 1, 1);
    emu_tile_dpbf16ps(0, 1, 2);
}

static void misuse_is_a_fault(void **state) {
    (void)state;
    for (int kind = 0; kind <= 10; kind++) {
        int status = 0;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)close(STDERR_FILENO);
            misuse(kind);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        /* kind 10 is none; others abort (a sanitizer may turn that into an exit) */
        if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) != (kind == 10))
            fail_msg("misuse %d: status %d", kind, status);
    }
}

static void products_give_tiles_back(void **state) {
    enum { M = 33, N = 18, K = 70 };
    static const struct {
        enum dtype w;
        int rows;
        bool tiles;
    } cases[] = {{DTYPE_BF16, 1, true},
                 {DTYPE_BF16, M, true},
                 {DTYPE_F32, M, false},
                 {DTYPE_INT8, 2 * TILE_ROWS, false},
                 {DTYPE_INT8, 2 * TILE_ROWS + 1, true},
                 {DTYPE_INT4, 1, false},
                 {DTYPE_INT4, M, true}};
    static float x[M * K], w[N * K], y[M * N];
    static _Alignas(64) uint8_t xp[64 * 96 * 4], panels[2 * 16 * 96 * 4];
    struct kernels kn;
    (void)state;
    if (kernels_find(&kn, "amx", NULL) != ERR_OK) skip();
    assert_true(sizeof(xp) >= x_pack_bytes(M, K));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t before = emu_tile_products();
        for (int p = 0; p < 2; p++)
            kn.panel_pack(panels + (size_t)p * panel_bytes(K, cases[i].w), w + p * PANEL_ROWS * K,
                          p == 1 ? N - PANEL_ROWS : PANEL_ROWS, K, cases[i].w);
        kn.x_pack(xp, x, K, 0, cases[i].rows, K, cases[i].w);
        kn.gemm(y, N, xp, panels, cases[i].rows, K, N, cases[i].w);
        assert_false(emu_tiles_held());
        if ((emu_tile_products() > before) != cases[i].tiles) fail_msg("case %zu", i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_product),
        cmocka_unit_test(bf16_order),
        cmocka_unit_test(byte_products),
        cmocka_unit_test(misuse_is_a_fault),
        cmocka_unit_test(products_give_tiles_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
