/* attention_plan: see attention_plan.h. */
#include "common/engine/attention_plan.h"

/* A tile is cut when its item is more than this part of a thread's fair share of the layer. So
 * there are fewer than SHARES * threads / groups such tiles. */
enum { SHARES = 4 };

/* With fewer items a thread than this, the last of them are long enough to wait for: then twice as
 * many items as threads are cut, whose chunks fill up what is left. */
enum { ITEMS_PLENTY = 20 };

/* A pass of a prompt, of so many rows and more, has tiles of several rows to hand out by the row:
 * an item has no more than this part of a thread's fair share of what is left, so the last ones,
 * which threads wait for, are small. */
enum { PROMPT_ROWS = 96, SHARES_LEFT = 2 };

void attention_plan_init(struct attention_plan *p, const struct attention_shape *s, int threads,
                         int tiles_max, int seq_tokens_max) {
    const size_t chunks = ((size_t)seq_tokens_max + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK;
    const int groups = attention_groups(s);
    const size_t parts = chunks * (size_t)groups, one = parts * attention_part_floats(s, 1);
    *p = (struct attention_plan){
        .shape = *s, .threads = threads, .tiles_max = tiles_max, .items_max = (size_t)tiles_max};
    if (threads < 2 || chunks < 2) return; /* nothing is ever cut */
    p->cuts_max = (SHARES * threads + groups - 1) / groups;
    if (p->cuts_max > tiles_max) p->cuts_max = tiles_max;
    p->parts_max = (size_t)p->cuts_max * parts * attention_part_floats(s, attention_rows(s));
    if (p->parts_max > ATTENTION_PARTS_BYTES / sizeof(float))
        p->parts_max = ATTENTION_PARTS_BYTES / sizeof(float);
    if (p->parts_max < one) p->parts_max = one;
    /* Chunks there can be, and those whose parts find room. */
    const size_t all = (size_t)p->cuts_max * chunks, room = p->parts_max / (one / chunks);
    p->items_max += all < room ? all : room;
}

static int64_t work_of(const struct attention_tile *t, int window) {
    int first;
    return (int64_t)attention_chunks(t, window, &first) * t->n;
}

/* Takes room for the parts of tile i; false: there is none left. */
static bool cut(struct attention_plan *p, int window, int i, size_t *used) {
    const struct attention_tile *t = &p->tiles[i];
    struct attention_cut c = {.tile = i, .parts = *used};
    c.n_chunks = attention_chunks(t, window, &c.first);
    const size_t floats = (size_t)c.n_chunks * (size_t)attention_groups(&p->shape) *
                          attention_part_floats(&p->shape, t->n);
    if (p->n_cuts == p->cuts_max || floats > p->parts_max - *used) return false;
    p->cuts[p->n_cuts++] = c;
    *used += floats;
    return true;
}

/* Positions by rows that the tile sees: what its item costs. */
static int64_t seen_of(const struct attention_tile *t, int window) {
    int first;
    const int most = attention_chunks(t, window, &first) * ATTENTION_CHUNK,
              high = (t->end > 0 ? t->end : t->position + t->n) - first * ATTENTION_CHUNK;
    return (int64_t)t->n * (high < most ? high : most);
}

static bool by_rows(const struct attention_plan *p, int i, int rows) {
    return p->threads > 1 && rows >= PROMPT_ROWS && p->tiles[i].n > 1;
}

/* Items of tile i, whose cost is taken from what is left. */
static void add_rows(struct attention_plan *p, int window, int i, int64_t *left) {
    const struct attention_tile *t = &p->tiles[i];
    const int64_t row = seen_of(t, window) / t->n;
    for (int r = 0, n; r < t->n; r += n) {
        const int64_t most = *left * attention_groups(&p->shape) / (SHARES_LEFT * p->threads) / row;
        n = most < 1 ? 1 : most < t->n - r ? (int)most : t->n - r;
        p->items[p->n_items++] = (struct attention_item){.tile = i, .cut = -1, .row = r, .n = n};
        *left -= n * row;
    }
}

void attention_plan_make(struct attention_plan *p, int window) {
    int64_t total = 0, left = 0;
    int rows = 0;
    size_t used = 0;
    p->n_items = p->n_cuts = 0;
    for (int i = 0; i < p->n_tiles; i++) rows += p->tiles[i].n;
    for (int i = 0; i < p->n_tiles; i++) {
        total += work_of(&p->tiles[i], window);
        if (by_rows(p, i, rows)) left += seen_of(&p->tiles[i], window);
    }
    const int groups = attention_groups(&p->shape);
    const int64_t most = total * groups / (SHARES * p->threads);
    int fill = left == 0 && p->n_tiles * groups < ITEMS_PLENTY * p->threads
                   ? (2 * p->threads + groups - 1) / groups
                   : 0;
    /* Late rows see more positions: the long items go first, and the chunks, or a prompt's rows,
     * fill up at the end. */
    for (int i = p->n_tiles - 1; i >= 0; i--) {
        const int64_t work = work_of(&p->tiles[i], window);
        if (by_rows(p, i, rows)) continue;
        if (p->threads > 1 && (work > most || fill > 0) && work > p->tiles[i].n &&
            cut(p, window, i, &used)) {
            fill--;
            continue;
        }
        p->items[p->n_items++] = (struct attention_item){.tile = i, .cut = -1, .n = p->tiles[i].n};
    }
    for (int i = 0; i < p->n_cuts; i++) {
        for (int c = 0; c < p->cuts[i].n_chunks; c++)
            p->items[p->n_items++] = (struct attention_item){
                .tile = p->cuts[i].tile, .cut = i, .chunk = c, .n = p->tiles[p->cuts[i].tile].n};
    }
    for (int i = p->n_tiles - 1; i >= 0; i--)
        if (by_rows(p, i, rows)) add_rows(p, window, i, &left);
}

void attention_plan_run(const struct attention_plan *p, const struct attention *a, int item,
                        float *scratch) {
    const int groups = attention_groups(&p->shape), group = item % groups;
    const struct attention_item *it = &p->items[item / groups];
    const struct attention_tile *t = &p->tiles[it->tile];
    if (it->cut < 0) {
        struct attention_tile some = *t;
        some.row += it->row;
        some.position += it->row;
        some.n = it->n;
        attention_tile(a, &some, group, scratch);
        return;
    }
    const struct attention_cut *c = &p->cuts[it->cut];
    const size_t floats = attention_part_floats(&p->shape, t->n);
    float *parts = p->parts + c->parts + (size_t)(group * c->n_chunks) * floats;
    atomic_int *done = &p->done[it->cut * groups + group];
    attention_chunk(a, t, group, c->first + it->chunk, parts + (size_t)it->chunk * floats, scratch);
    /* Whoever counts last sees the parts of all, and nobody else touches the count again. */
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 < c->n_chunks) return;
    atomic_store_explicit(done, 0, memory_order_relaxed);
    attention_join(a, t, group, parts, c->n_chunks);
}
