/* ctl_serve: a model served on this machine without any configuration: one instance, or a
 * coordinator with a prefill and a decode instance on the cores there are. Every setting is a flag
 * of the daemons (common/base/conf_layers.h); what they log lies in a folder of this user's, which
 * `logs` and the other commands find. Ends what it started, and nothing else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "tools/ctl/ctl.h"

enum {
    SERVED_MAX = 16,
    CHILDREN_MAX = 1 + SERVED_MAX, /* the coordinator first, where there is one */
    WORDS_MAX = 128,
    LOOK_MS = 100,
    DRAIN_S = 10, /* for answers that are being written when it is ended */
    KILL_S = 25,  /* from the first signal on */
    PORT_FIRST = 1025,
    PORTS_TRIED = 200,
    CONTEXT_DEFAULT = 4096,
    PREFILL_TOKENS = 8192,
    TAIL_LINES = 8,
};

struct child {
    char name[24];
    const char *program;
    pid_t pid; /* 0: not started, or ended */
    cpu_set_t cpus;
    int threads;
    char *words[WORDS_MAX + 1];
    int n_words;
};

struct serve {
    struct ctl *c;
    struct child children[CHILDREN_MAX];
    int n, n_instances;
    bool split, cluster, embeds; /* cluster: there is a coordinator */
    const char *host;
    int port, manage_port;
    struct {
        int port, mgmt, kv;
    } at[SERVED_MAX];
    char model[PATH_MAX], name[128], dir[512], base[96], manage[96];
    uint64_t end_ms; /* when what is left is killed; 0: it serves */
    int next_port;
    int status;
};

/* ---- the model */

/* Folders that have the bundled models, beside this program. */
static bool bundled(char out[PATH_MAX], int i, const char *name) {
    static const char *const forms[] = {"%.*s/../../models/%s", "%.*s/../share/baton/models/%s"};
    char exe[2048];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0 || i >= 2) return false;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    snprintf(out, PATH_MAX, forms[i], slash != NULL ? (int)(slash - exe) : 1,
             slash != NULL ? exe : ".", name);
    return true;
}

static void name_bundled(const struct ctl *c) {
    char path[PATH_MAX];
    for (int i = 0; bundled(path, i, ""); i++) {
        DIR *d = opendir(path);
        if (d == NULL) continue;
        fprintf(stderr, "%s: bundled models:", c->name);
        for (struct dirent *e; (e = readdir(d)) != NULL;)
            if (e->d_name[0] != '.') fprintf(stderr, " %s", e->d_name);
        fputc('\n', stderr);
        closedir(d);
        return;
    }
}

bool ctl_find_model(const struct ctl *c, const char *word, char model[4096]) {
    char path[PATH_MAX];
    if (realpath(word, model) != NULL) return true;
    for (int i = 0; strchr(word, '/') == NULL && bundled(path, i, word); i++)
        if (realpath(path, model) != NULL) return true;
    ctl_fail(c, 2, "MODEL must be a folder, a GGUF file or a bundled model, got \"%s\": %s", word,
             strerror(ENOENT));
    name_bundled(c);
    return false;
}

/* "/models/Qwen 2.gguf": "Qwen-2". */
static void name_model(struct serve *s) {
    const char *said = ctl_option(s->c, "--name"), *slash = strrchr(s->model, '/');
    snprintf(s->name, sizeof(s->name), "%.120s",
             said != NULL    ? said
             : slash != NULL ? slash + 1
                             : "");
    if (said != NULL) return; /* the instance says what is wrong with it */
    size_t n = strlen(s->name);
    if (n > 5 && strcmp(s->name + n - 5, ".gguf") == 0) s->name[n -= 5] = '\0';
    for (char *p = s->name; *p != '\0'; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
              strchr("-._", *p) != NULL))
            *p = '-';
    while (n > 0 && strchr("-._", s->name[n - 1]) != NULL) s->name[--n] = '\0';
    const size_t skip = strspn(s->name, "-._");
    memmove(s->name, s->name + skip, n + 1 - skip);
    if (s->name[0] == '\0') snprintf(s->name, sizeof(s->name), "model");
}

/* ---- ports and cores */

static bool is_free(const char *host, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1) at.sin_addr.s_addr = htonl(INADDR_ANY);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool ok =
        fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 1) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

/* The next port that nobody has; 0: there is none. */
static int next_free(struct serve *s, const char *host) {
    for (int i = 0; i < PORTS_TRIED && s->next_port <= 65535; i++) {
        const int port = s->next_port++;
        if (is_free(host, port)) return port;
    }
    return 0;
}

static bool choose_ports(struct serve *s) {
    long port = 0;
    if (!ctl_number(s->c, "--port", 1024, 65535, &port)) return false;
    if (port != 0 && !is_free(s->host, (int)port)) {
        ctl_fail(s->c, 1, "port %ld of %s is taken; without --port the next free one is used", port,
                 s->host);
        return false;
    }
    s->next_port = PORT_FIRST;
    s->port = port != 0 ? (int)port : next_free(s, s->host);
    s->next_port = s->port + 1;
    bool ok = s->port != 0 && (s->manage_port = next_free(s, "127.0.0.1")) != 0;
    for (int i = 0; ok && s->cluster && i < s->n_instances; i++)
        ok = (s->at[i].mgmt = next_free(s, "127.0.0.1")) != 0 &&
             (s->at[i].kv = next_free(s, "127.0.0.1")) != 0 &&
             (s->at[i].port = next_free(s, "127.0.0.1")) != 0;
    if (!ok) ctl_fail(s->c, 1, "no free ports from %d on", s->port != 0 ? s->port : PORT_FIRST);
    return ok;
}

/* Cores that this process may use, and as many as its control group pays for. */
static int cores_allowed(cpu_set_t *cpus) {
    long long quota = 0, period = 0;
    if (sched_getaffinity(0, sizeof(*cpus), cpus) != 0) CPU_ZERO(cpus);
    int n = CPU_COUNT(cpus);
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f != NULL) {
        if (fscanf(f, "%lld %lld", &quota, &period) == 2 && period > 0 &&
            (quota + period - 1) / period < n)
            n = (int)((quota + period - 1) / period);
        fclose(f);
    }
    return n > 0 ? n : 1;
}

/* The cores from `first` on, so many of them. */
static void take_cores(cpu_set_t *to, const cpu_set_t *from, int first, int n) {
    CPU_ZERO(to);
    for (int cpu = 0, i = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, from)) continue;
        if (i >= first && i < first + n) CPU_SET(cpu, to);
        i++;
    }
}

static bool choose_cores(struct serve *s) {
    cpu_set_t cpus;
    const int n = cores_allowed(&cpus);
    long threads = n;
    if (!ctl_number(s->c, "--threads", 1, 1024, &threads)) return false;
    const int total = CPU_COUNT(&cpus), of = s->n_instances;
    s->children[0].cpus = cpus;
    for (int i = 0, first = 0; i < of; i++) {
        struct child *k = &s->children[s->n - of + i];
        const int own = total / of + (i < total % of),
                  share = (int)threads / of + (i < threads % of);
        k->threads = share > 0 ? share : 1;
        k->cpus = cpus;
        if (total >= of) take_cores(&k->cpus, &cpus, first, own);
        first += own;
    }
    return true;
}

/* ---- what they are told */

static void say(struct child *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct child *k, const char *fmt, ...) {
    va_list ap;
    char *word = NULL;
    va_start(ap, fmt);
    if (k->n_words < WORDS_MAX && vasprintf(&word, fmt, ap) >= 0) k->words[k->n_words++] = word;
    va_end(ap);
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0;
}

static void say_open(struct serve *s, struct child *k) {
    say(k, "--error-style=openai");
    say(k, "--cors-allow-origin=http://localhost:* http://127.0.0.1:*");
    if (is_loopback(s->host)) return;
    say(k, "--allow-insecure");
    say(k, "--allow-all-zero-ip-listening");
}

static bool say_instance(struct serve *s, struct child *k, int port, int mgmt, int kv) {
    long context = CONTEXT_DEFAULT;
    if (!ctl_number(s->c, "--context", 16, 4194304, &context)) return false;
    say(k, "--infer-mode=%s", s->cluster ? "dmi" : "standard");
    say(k, "--no-https-enabled");
    say(k, "--model-name=%s", s->name);
    say(k, "--model-weight-path=%s", s->model);
    say(k, "--ip-address=%s", s->cluster ? "127.0.0.1" : s->host);
    say(k, "--management-ip-address=127.0.0.1");
    say(k, "--port=%d", port);
    say(k, "--management-port=%d", mgmt);
    say(k, "--metrics-port=%d", mgmt);
    say(k, "--compute-threads=%d", k->threads);
    say(k, "--max-seq-len=%ld", context);
    say(k, "--max-input-token-len=%ld", context - 1);
    say(k, "--max-prefill-tokens=%ld", context > PREFILL_TOKENS ? context : PREFILL_TOKENS);
    say(k, "--max-iter-times=%ld", context);
    say(k, "--max-batch-size=32");
    say(k, "--max-prefill-batch-size=8");
    say(k, "--stop-drain-timeout-seconds=%d", DRAIN_S);
    if (s->cluster) {
        say(k, "--instance-name=%s", k->name);
        say(k, "--no-inter-comm-tls-enabled");
        say(k, "--inter-comm-port=%d", kv);
        say(k, "--register-url=%s", s->manage);
    }
    say_open(s, k);
    for (int i = 0; i < s->c->argc; i++) say(k, "%s", s->c->argv[i]);
    return true;
}

static void say_coordinator(struct serve *s, struct child *k) {
    say(k, "--predict-ip=%s", s->host);
    say(k, "--predict-port=%d", s->port);
    say(k, "--manage-port=%d", s->manage_port);
    say(k, "--external-port=%d", s->manage_port);
    say(k, "--status-port=%d", s->manage_port);
    say(k, "--stop-drain-timeout-s=%d", DRAIN_S);
    if (!s->split) say(k, "--deploy-mode=single_node");
    say_open(s, k);
}

/* A name for the log, the status and the metrics: "prefill", or with several "prefill-2". */
static void name_child(struct child *k, const char *word, int i, int n) {
    if (n > 1)
        snprintf(k->name, sizeof(k->name), "%s-%d", word, i + 1);
    else
        snprintf(k->name, sizeof(k->name), "%s", word);
}

static void name_children(struct serve *s) {
    const int n_p = s->split ? (s->n_instances + 1) / 2 : s->n_instances;
    struct child *k = s->children;
    if (s->cluster) {
        k->program = "coordinator";
        name_child(k++, "coordinator", 0, 1);
    }
    for (int i = 0; i < s->n_instances; i++, k++) {
        k->program = i < n_p ? "prefill" : "decode";
        if (i < n_p)
            name_child(k, s->split ? "prefill" : "instance", i, n_p);
        else
            name_child(k, "decode", i - n_p, s->n_instances - n_p);
    }
}

static bool describe(struct serve *s) {
    if (!choose_ports(s)) return false;
    snprintf(s->base, sizeof(s->base), "http://%s:%d",
             strcmp(s->host, "0.0.0.0") == 0 ? "127.0.0.1" : s->host, s->port);
    snprintf(s->manage, sizeof(s->manage), "http://127.0.0.1:%d", s->manage_port);
    s->n = s->n_instances + (s->cluster ? 1 : 0);
    name_children(s);
    for (int i = 0; i < s->n; i++) {
        struct child *k = &s->children[i];
        char path[4096];
        if (!ctl_program(s->c, k->program, path)) return false;
        say(k, "%s", path);
    }
    if (!choose_cores(s)) return false;
    if (!s->cluster) return say_instance(s, &s->children[0], s->port, s->manage_port, 0);
    say_coordinator(s, &s->children[0]);
    for (int i = 0; i < s->n_instances; i++)
        if (!say_instance(s, &s->children[1 + i], s->at[i].port, s->at[i].mgmt, s->at[i].kv))
            return false;
    return true;
}

/* ---- its folder */

static void remove_folder(const char *path) {
    DIR *d = opendir(path);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

/* What clusters left that were killed. */
static void remove_stale(const char *base) {
    DIR *d = opendir(base);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[600];
        const long pid = strtol(e->d_name, NULL, 10);
        if (pid < 2 || strlen(e->d_name) > 10 || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        snprintf(path, sizeof(path), "%s/%.10s", base, e->d_name);
        remove_folder(path);
    }
    closedir(d);
}

static bool make_folder(struct serve *s) {
    char base[256];
    if (!ctl_run_dir(base, true)) {
        ctl_fail(s->c, 1, "%s must be a folder that only this user can read and write", base);
        return false;
    }
    remove_stale(base);
    snprintf(s->dir, sizeof(s->dir), "%s/%d", base, (int)getpid());
    if (mkdir(s->dir, 0700) == 0) return true;
    ctl_fail(s->c, 1, "%s: %s", s->dir, strerror(errno));
    return false;
}

/* For the other commands. */
static bool write_facts(struct serve *s) {
    char path[600];
    snprintf(path, sizeof(path), "%s/serve.json", s->dir);
    FILE *f = fopen(path, "we");
    if (f == NULL) return false;
    fprintf(f, "{\"pid\":%d,\"url\":\"%s\",\"model\":\"%s\",\"manage\":\"%s\",\"logs\":[",
            (int)getpid(), s->base, s->name, s->cluster ? s->manage : "");
    for (int i = 0; i < s->n; i++) fprintf(f, "%s\"%s\"", i > 0 ? "," : "", s->children[i].name);
    fputs("]}\n", f);
    return fclose(f) == 0;
}

/* ---- children */

static bool start(struct serve *s, struct child *k) {
    char log[640];
    const pid_t parent = getpid();
    snprintf(log, sizeof(log), "%s/%s.log", s->dir, k->name);
    k->words[k->n_words] = NULL;
    k->pid = fork();
    if (k->pid != 0) return k->pid > 0;
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setpgid(0, 0); /* Ctrl-C is ours to pass on */
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    (void)sched_setaffinity(0, sizeof(k->cpus), &k->cpus);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC),
              out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(k->words[0], k->words);
    fprintf(stderr, "%s: %s\n", k->words[0], strerror(errno));
    _exit(127);
}

static void print_tail(const struct serve *s, const struct child *k) {
    char path[640], line[TAIL_LINES][1024];
    int n = 0;
    snprintf(path, sizeof(path), "%s/%s.log", s->dir, k->name);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line[n % TAIL_LINES], sizeof(line[0]), f) != NULL) n++;
    if (f != NULL) fclose(f);
    for (int i = n > TAIL_LINES ? n - TAIL_LINES : 0; i < n; i++)
        fprintf(stderr, "  %s", line[i % TAIL_LINES]);
}

static int n_alive(const struct serve *s) {
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->children[i].pid > 0;
    return n;
}

static void signal_from(struct serve *s, int first, int sig) {
    for (int i = first; i < s->n; i++)
        if (s->children[i].pid > 0) kill(s->children[i].pid, sig);
}

/* The first in the list drains, and while it is there the others go on with what it has. */
static void begin_end(struct serve *s) {
    if (s->end_ms != 0) return;
    s->end_ms = clock_ms() + KILL_S * 1000;
    if (s->children[0].pid > 0)
        kill(s->children[0].pid, SIGTERM);
    else
        signal_from(s, 1, SIGTERM);
}

static void look_at_children(struct serve *s) {
    for (int i = 0; i < s->n; i++) {
        struct child *k = &s->children[i];
        int status = 0;
        if (k->pid <= 0 || waitpid(k->pid, &status, WNOHANG) != k->pid) continue;
        k->pid = 0;
        if (s->end_ms == 0) {
            s->status = 1;
            if (WIFSIGNALED(status))
                ctl_fail(s->c, 1, "%s was ended by signal %d; its last lines:", k->name,
                         WTERMSIG(status));
            else
                ctl_fail(s->c, 1, "%s ended with status %d; its last lines:", k->name,
                         WEXITSTATUS(status));
            print_tail(s, k);
            fprintf(stderr, "%s: logs are kept in %s\n", s->c->name, s->dir);
            begin_end(s);
        }
        if (i == 0) signal_from(s, 1, SIGTERM);
    }
    if (s->end_ms != 0 && clock_ms() > s->end_ms) signal_from(s, 0, SIGKILL);
}

/* ---- what is shown */

static void show_progress(struct serve *s, const struct ctl_answer *a) {
    struct json_value *root = NULL;
    if (!ctl_moves() || s->c->json) return;
    if (json_read(&root, a->body, a->len, NULL, NULL) == ERR_OK &&
        ctl_str(root, "what")[0] != '\0') {
        printf("\rloading %s: %s %3lld%% ", s->name, ctl_str(root, "what"),
               ctl_num(root, "percent"));
        fflush(stdout);
    }
    json_put(root);
}

/* A cluster is ready with its first pair, or its first instance; it is served when all are. */
static bool has_all(const struct serve *s, const struct ctl_answer *a) {
    struct json_value *root = NULL;
    bool all = !s->cluster;
    if (s->cluster && json_read(&root, a->body, a->len, NULL, NULL) == ERR_OK) {
        const long long p = ctl_num(root, "prefill"), d = ctl_num(root, "decode");
        all = (s->split ? p + d : p) >= s->n_instances;
    }
    json_put(root);
    return all;
}

static bool is_ready(struct serve *s) {
    struct ctl_answer a;
    char at[96];
    bool ready = false;
    const char *path = s->cluster ? "/v1/readiness" : "/v2/health/ready";
    if (ctl_ask_at(s->c, s->cluster ? s->manage : s->base, "GET", path, NULL, true, &a)) {
        ready = a.status == 200 && has_all(s, &a);
        if (!s->cluster && !ready) show_progress(s, &a);
    }
    ctl_answer_free(&a);
    snprintf(at, sizeof(at), "http://127.0.0.1:%d", s->cluster ? s->at[0].mgmt : s->manage_port);
    if (!ready && s->cluster && ctl_ask_at(s->c, at, "GET", "/v2/health/ready", NULL, true, &a)) {
        show_progress(s, &a);
        ctl_answer_free(&a);
    }
    if (ready && ctl_ask_at(s->c, at, "GET", "/v2/status", NULL, true, &a)) {
        struct json_value *root = NULL;
        if (json_read(&root, a.body, a.len, NULL, NULL) == ERR_OK)
            (void)json_get_bool(root, "embedsOnly", &s->embeds);
        json_put(root);
        ctl_answer_free(&a);
    }
    return ready;
}

static void show_ready(const struct serve *s) {
    const struct child *k = s->children;
    if (s->c->json) {
        printf("{\"url\":\"%s\",\"model\":\"%s\",\"manage\":\"%s\",\"logs\":\"%s\"}\n", s->base,
               s->name, s->cluster ? s->manage : "", s->dir);
        fflush(stdout);
        return;
    }
    if (ctl_moves()) printf("\r\033[K");
    int threads[2] = {0};
    for (int i = s->n - s->n_instances; i < s->n; i++)
        threads[strcmp(k[i].program, "decode") == 0] += k[i].threads;
    if (s->split)
        printf("%s is served at %s/v1: prefill on %d and decode on %d threads\n\n", s->name,
               s->base, threads[0], threads[1]);
    else if (s->cluster)
        printf("%s is served at %s/v1 by %d instances on %d threads\n\n", s->name, s->base,
               s->n_instances, threads[0]);
    else
        printf("%s is served at %s/v1 by one instance on %d threads\n\n", s->name, s->base,
               k[0].threads);
    if (s->embeds)
        printf("curl %s/v1/embeddings -d '{\"model\":\"%s\",\"input\":[\"Once upon a time\"]}'\n\n",
               s->base, s->name);
    else
        printf("curl -N %s/v1/chat/completions -d "
               "'{\"model\":\"%s\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":"
               "\"Tell me a story about a fox.\"}]}'\n\n",
               s->base, s->name);
    if (!is_loopback(s->host))
        printf(
            "anybody who reaches %s may use it: there are no keys and no TLS (docs/operations.md "
            "has both)\n",
            s->host);
    if (!s->embeds) printf("to chat in a browser: %s/chat/\n", s->base);
    if (s->cluster) printf("the cluster in a browser: %s/console/\n", s->manage);
    printf("every path: %s/docs; logs: %s logs -f%s; Ctrl-C ends it\n", s->base, s->c->name,
           s->cluster ? "; the cluster: baton status" : "");
    fflush(stdout);
}

/* ---- life */

/* Waits a little for a signal. The first ends in order, a second at once. */
static void wait_a_little(struct serve *s, const sigset_t *signals) {
    const struct timespec t = {.tv_nsec = LOOK_MS * 1000000L};
    const int got = sigtimedwait(signals, NULL, &t);
    if (got != SIGINT && got != SIGTERM && got != SIGHUP) return;
    if (s->end_ms != 0) {
        signal_from(s, 0, SIGTERM);
        return;
    }
    if (!s->c->json) {
        printf("\nending: answers under way have %d s; Ctrl-C again ends them\n", DRAIN_S);
        fflush(stdout);
    }
    begin_end(s);
}

static void run(struct serve *s) {
    sigset_t signals;
    bool ready = false;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    for (int i = 0; i < s->n; i++)
        if (!start(s, &s->children[i])) {
            s->status =
                ctl_fail(s->c, 1, "cannot start %s: %s", s->children[i].name, strerror(errno));
            begin_end(s);
            break;
        }
    while (n_alive(s) > 0) {
        look_at_children(s);
        if (!ready && s->end_ms == 0 && is_ready(s)) {
            ready = true;
            show_ready(s);
        }
        wait_a_little(s, &signals);
    }
}

int ctl_cmd_serve(struct ctl *c) {
    struct serve s = {
        .c = c, .host = ctl_option(c, "--host"), .split = ctl_option(c, "--split") != NULL};
    struct in_addr addr;
    long n = s.split ? 2 : 1;
    int status = 2;
    if (!ctl_number(c, "--instances", n, SERVED_MAX, &n)) return 2;
    s.n_instances = (int)n;
    s.cluster = n > 1;
    if (s.host == NULL) s.host = "127.0.0.1";
    if (inet_pton(AF_INET, s.host, &addr) != 1)
        return ctl_fail(c, 2, "--host must be an IPv4 address, got \"%s\"", s.host);
    if (!ctl_find_model(c, c->args[0], s.model)) return 2;
    name_model(&s);
    if (describe(&s)) {
        status = 1;
        if (make_folder(&s)) {
            if (write_facts(&s)) {
                run(&s);
                status = s.status;
            } else {
                ctl_fail(c, 1, "%s/serve.json: %s", s.dir, strerror(errno));
            }
            if (status == 0) remove_folder(s.dir);
        }
    }
    for (int i = 0; i < CHILDREN_MAX; i++)
        for (int k = 0; k < s.children[i].n_words; k++) free(s.children[i].words[k]);
    return status;
}
