/* ctl_local: what lies on this machine: the daemons' programs, their configuration, their logs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "proto/err.h"
#include "tools/ctl/ctl.h"

enum {
    SAID_BYTES_MAX = 8192,
    OUT_BYTES_MAX = 4 << 20,
    FOLLOW_MS = 200,
    LINES_MAX = 100000,
};

/* ---- programs */

bool ctl_program(const struct ctl *c, const char *name, char path[4096]) {
    char dir[3500];
    const ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    if (n <= 0) {
        ctl_fail(c, 1, "cannot find its own folder: %s", strerror(errno));
        return false;
    }
    dir[n] = '\0';
    char *slash = strrchr(dir, '/');
    if (slash != NULL) *slash = '\0';
    static const char *const forms[] = {"%s/%s", "%s/baton-%s"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, 4096, forms[i], dir, name);
        if (access(path, X_OK) == 0) return true;
    }
    ctl_fail(c, 1, "%s/%s cannot be run: %s", dir, name, strerror(errno));
    return false;
}

/* Models and kernels are the affair of the instance's program, which lies beside this one. */
static int model_command(struct ctl *c, const char *flag) {
    char path[4096], model[4096] = "";
    char **argv = calloc((size_t)c->argc + 3, sizeof(*argv));
    if (argv == NULL) return ctl_fail(c, 1, "out of memory");
    if (c->argc < 1) {
        free(argv);
        return ctl_usage(c->command, stderr);
    }
    if (!ctl_program(c, "prefill", path)) {
        free(argv);
        return 1;
    }
    argv[0] = path;
    argv[1] = (char *)(uintptr_t)flag;
    for (int i = 0; i < c->argc; i++) argv[i + 2] = c->argv[i];
    /* A bundled model may go by its name, as with serve. */
    if (c->argv[0][0] != '-' && strchr(c->argv[0], '/') == NULL && access(c->argv[0], F_OK) != 0 &&
        !ctl_find_model(c, c->argv[0], model)) {
        free(argv);
        return 2;
    }
    if (model[0] != '\0') argv[2] = model;
    execv(path, argv);
    free(argv);
    return ctl_fail(c, 1, "%s cannot be run: %s", path, strerror(errno));
}

int ctl_cmd_inspect(struct ctl *c) {
    return model_command(c, "--inspect");
}

int ctl_cmd_quantize(struct ctl *c) {
    return model_command(c, "--pack-weights");
}

/* ---- check */

static void read_out(FILE *f, struct buf *out) {
    char chunk[4096];
    rewind(f);
    for (size_t n; out->len < OUT_BYTES_MAX && (n = fread(chunk, 1, sizeof(chunk), f)) > 0;)
        buf_append(out, chunk, n);
}

bool ctl_child_start(struct ctl_child *child, char *const argv[], bool keep_out) {
    int fds[2];
    *child = (struct ctl_child){.pid = -1, .said_fd = -1};
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    if (keep_out) child->out = tmpfile(); /* it waits for no reader, as a pipe would */
    child->pid = keep_out && child->out == NULL ? -1 : fork();
    if (child->pid == 0) {
        const int to = keep_out ? fileno(child->out) : open("/dev/null", O_WRONLY);
        dup2(to, STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        execv(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    child->said_fd = fds[0];
    return child->pid > 0;
}

int ctl_child_end(struct ctl_child *child, struct buf *out, struct buf *said) {
    char chunk[512];
    int status = -1;
    for (ssize_t n; child->pid > 0 && (n = read(child->said_fd, chunk, sizeof(chunk))) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        if (said->len < SAID_BYTES_MAX) buf_append(said, chunk, (size_t)n);
    }
    if (child->said_fd >= 0) close(child->said_fd);
    while (child->pid > 0 && waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {}
    if (out != NULL && child->out != NULL && child->pid > 0) read_out(child->out, out);
    if (child->out != NULL) fclose(child->out);
    return child->pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void ctl_child_stop(struct ctl_child *child) {
    struct buf said = BUF_INIT;
    kill(child->pid, SIGTERM);
    (void)ctl_child_end(child, NULL, &said);
    buf_free(&said);
}

bool ctl_child_runs(const struct ctl_child *child) {
    siginfo_t ended = {0};
    return child->pid > 0 &&
           waitid(P_PID, (id_t)child->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0;
}

/* ---- processor time (proc(5)) */

struct task {
    char name[32];
    long parent;
    struct ctl_cpu cpu;
};

static bool read_task(const char *path, struct task *t) {
    char text[1024];
    unsigned long user = 0, kernel = 0;
    FILE *f = fopen(path, "re");
    const size_t n = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[n] = '\0';
    char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (name == NULL || end == NULL || end < name) return false;
    *end = '\0';
    snprintf(t->name, sizeof(t->name), "%s", name + 1);
    if (sscanf(end + 1, " %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &t->parent, &user,
               &kernel) != 3)
        return false;
    t->cpu = (struct ctl_cpu){(double)(user + kernel) / (double)sysconf(_SC_CLK_TCK), 0};
    return true;
}

/* To the nanosecond, which stat has not: a thread that works for microseconds at a time is a
 * hundredth of a second only after many of them. Kernels without it say nothing, or 0. */
static void read_exact(const char *dir, struct ctl_cpu *cpu) {
    char path[340];
    unsigned long long ran = 0, waited = 0;
    snprintf(path, sizeof(path), "%s/schedstat", dir);
    FILE *f = fopen(path, "re");
    if (f != NULL && fscanf(f, "%llu %llu", &ran, &waited) == 2 && ran > 0)
        *cpu = (struct ctl_cpu){(double)ran * 1e-9, (double)waited * 1e-9};
    if (f != NULL) fclose(f);
}

/* Of its engine's threads, or of all others. */
static void add_threads(long pid, bool engines, struct ctl_cpu *sum) {
    char path[300], dir[280];
    struct task t;
    snprintf(path, sizeof(path), "/proc/%ld/task", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(dir, sizeof(dir), "/proc/%ld/task/%.20s", pid, e->d_name);
        snprintf(path, sizeof(path), "%s/stat", dir);
        if (e->d_name[0] == '.' || !read_task(path, &t) ||
            (strcmp(t.name, "engine") == 0) != engines)
            continue;
        read_exact(dir, &t.cpu);
        sum->ran_s += t.cpu.ran_s;
        sum->waited_s += t.cpu.waited_s;
    }
    if (d != NULL) closedir(d);
}

/* role NULL: whatever it is called. */
static void add_children(int pid, const char *role, bool engines, struct ctl_cpu *sum) {
    DIR *d = opendir("/proc");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[64];
        struct task t;
        const long other = strtol(e->d_name, NULL, 10);
        snprintf(path, sizeof(path), "/proc/%ld/stat", other);
        if (other > 0 && read_task(path, &t) && t.parent == pid &&
            (role == NULL || strcmp(t.name, role) == 0))
            add_threads(other, engines, sum);
    }
    if (d != NULL) closedir(d);
}

double ctl_cpu_beside_engines(int pid) {
    struct ctl_cpu sum = {0, 0};
    add_threads(pid, false, &sum);
    add_children(pid, NULL, false, &sum);
    return sum.ran_s;
}

struct ctl_cpu ctl_cpu_of_engines(int pid, const char *role) {
    struct ctl_cpu sum = {0, 0};
    add_children(pid, role, true, &sum);
    return sum;
}

/* Ticks of all processors since the start: those at work, and all. */
static bool read_ticks(double *busy, double *all) {
    unsigned long long user, nice, kernel, idle, disk, irq, soft, steal;
    FILE *f = fopen("/proc/stat", "re");
    const bool ok = f != NULL && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user,
                                        &nice, &kernel, &idle, &disk, &irq, &soft, &steal) == 8;
    if (f != NULL) fclose(f);
    if (!ok) return false;
    *busy = (double)(user + nice + kernel + irq + soft + steal);
    *all = *busy + (double)(idle + disk);
    return true;
}

double ctl_machine_busy(unsigned ms) {
    double busy, all, busy_then, all_then;
    if (!read_ticks(&busy, &all)) return 0;
    ctl_sleep_ms(ms);
    if (!read_ticks(&busy_then, &all_then) || !(all_then > all)) return 0;
    return (busy_then - busy) / (all_then - all);
}

/* ---- programs that are run */

int ctl_run_program(char *const argv[], struct buf *out, struct buf *said) {
    struct ctl_child child;
    (void)ctl_child_start(&child, argv, out != NULL);
    return ctl_child_end(&child, out, said);
}

static bool has(const struct json_value *root, const char *key) {
    struct json_value *v;
    return json_get(root, key, &v) == JSON_OK;
}

const char *ctl_kind_of(const struct json_value *root) {
    if (has(root, "server_group_list")) return "rank table";
    if (has(root, "ServerConfig") || has(root, "BackendConfig") || has(root, "BatonConfig"))
        return "instance";
    return "coordinator";
}

static int check_file(struct ctl *c, const char *file) {
    struct json_value *root = NULL;
    struct errbuf eb = {0};
    struct buf said = BUF_INIT, line = BUF_INIT;
    char path[4096], table[PATH_MAX] = "", none[1] = "";
    static char config[] = "-c", check[] = "--check-config",
                rank[] = "--global-rank-table-file-path";
    int rc = 2;
    if (json_read_file(&root, file, CTL_FILE_BYTES_MAX, NULL, &eb) != ERR_OK) {
        if (!c->json) return ctl_fail(c, 2, "%s", eb.text);
        buf_puts(&said, eb.text);
    }
    const char *kind = root != NULL ? ctl_kind_of(root) : "";
    const bool is_table = strcmp(kind, "rank table") == 0;
    json_put(root);
    if (root != NULL) {
        if (!ctl_program(c, strcmp(kind, "instance") == 0 ? "prefill" : "coordinator", path)) {
            buf_free(&said);
            return 1;
        }
        if (is_table && realpath(file, table) == NULL) snprintf(table, sizeof(table), "%s", file);
        char *const argv[] = {path, is_table ? rank : config,
                              is_table ? table : (char *)(uintptr_t)file, check, NULL};
        rc = ctl_run_program(argv, NULL, &said);
    }
    while (said.len > 0 && said.data[said.len - 1] == '\n') said.data[--said.len] = '\0';
    const char *text = said.data != NULL ? said.data : none;
    if (c->json) {
        buf_puts(&line, "{\"file\":");
        buf_json_text(&line, file, strlen(file), true);
        buf_printf(&line, ",\"kind\":\"%s\",\"ok\":%s,\"said\":", kind, rc == 0 ? "true" : "false");
        buf_json_text(&line, text, strlen(text), true);
        buf_puts(&line, "}");
        printf("%s\n", line.data != NULL ? line.data : "null");
    } else if (rc == 0) {
        printf("%s: good (%s)\n", file, kind);
        if (text[0] != '\0') printf("%s\n", text);
    } else {
        printf("%s: wrong (%s)\n%s\n", file, kind, text);
    }
    buf_free(&said);
    buf_free(&line);
    return rc == 0 ? 0 : 2;
}

int ctl_cmd_check(struct ctl *c) {
    int rc = 0;
    for (int i = 0; i < c->n_args; i++) {
        const int one = check_file(c, c->args[i]);
        if (one != 0) rc = one;
    }
    return rc;
}

/* ---- clusters that `serve` started */

/* Where everybody may write, nobody else may have made it. */
static bool is_ours(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid() &&
           (st.st_mode & 0077) == 0;
}

bool ctl_run_dir(char path[256], bool create) {
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (base != NULL && base[0] == '/' && strlen(base) < 200 && access(base, W_OK) == 0)
        snprintf(path, 256, "%s/baton", base);
    else
        snprintf(path, 256, "/tmp/baton-%u", (unsigned)getuid());
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    return is_ours(path);
}

struct json_value *ctl_served(char dir[512]) {
    char base[256], path[600];
    struct json_value *found = NULL;
    struct timespec youngest = {0};
    DIR *d = ctl_run_dir(base, false) ? opendir(base) : NULL;
    if (d == NULL) return NULL;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        struct json_value *root = NULL;
        const long pid = strtol(e->d_name, NULL, 10);
        if (pid < 2 || strlen(e->d_name) > 10 || kill((pid_t)pid, 0) != 0) continue;
        snprintf(path, sizeof(path), "%s/%.10s/serve.json", base, e->d_name);
        if (stat(path, &st) != 0 || st.st_mtim.tv_sec < youngest.tv_sec ||
            (st.st_mtim.tv_sec == youngest.tv_sec && st.st_mtim.tv_nsec < youngest.tv_nsec) ||
            json_read_file(&root, path, 1 << 16, NULL, NULL) != ERR_OK)
            continue;
        json_put(found);
        found = root;
        youngest = st.st_mtim;
        snprintf(dir, 512, "%s/%.10s", base, e->d_name);
    }
    closedir(d);
    return found;
}

/* ---- logs */

struct tail {
    FILE *file;
    char name[64];
    bool line_begins;
};

static void put_line(const struct ctl *c, struct tail *t, const char *line, bool named) {
    const size_t n = strcspn(line, "\n");
    if (c->json) {
        struct buf b = BUF_INIT;
        buf_puts(&b, "{\"from\":");
        buf_json_text(&b, t->name, strlen(t->name), true);
        buf_puts(&b, ",\"line\":");
        buf_json_text(&b, line, n, true);
        buf_puts(&b, "}");
        printf("%s\n", b.data != NULL ? b.data : "null");
        buf_free(&b);
    } else if (named) {
        printf("%-11s | %.*s\n", t->name, (int)n, line);
    } else {
        printf("%.*s\n", (int)n, line);
    }
}

/* Leaves the file at its last n lines. */
static void seek_lines(FILE *f, long n) {
    long at = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    long lines = 0;
    while (at > 0 && lines <= n) {
        (void)fseek(f, --at, SEEK_SET);
        lines += fgetc(f) == '\n';
    }
    (void)fseek(f, lines > n ? at + 1 : 0, SEEK_SET);
}

static void drain_tail(const struct ctl *c, struct tail *t, bool named) {
    char line[4096];
    while (fgets(line, sizeof(line), t->file) != NULL) put_line(c, t, line, named);
    clearerr(t->file);
    fflush(stdout);
}

static int show_files(struct ctl *c, const char *dir, const struct json_value *served, long lines) {
    struct json_value *names = NULL;
    struct tail tails[8];
    int n = 0, rc = 0;
    const char *wanted = c->n_args > 0 ? c->args[0] : NULL;
    json_get_arr(served, "logs", &names);
    for (size_t i = 0; names != NULL && i < json_arr_len(names) && n < 8; i++) {
        const char *name = "";
        size_t len;
        char path[700];
        json_as_str(json_arr_at(names, i), &name, &len);
        if ((wanted != NULL && strcmp(wanted, name) != 0) || strchr(name, '/') != NULL) continue;
        snprintf(path, sizeof(path), "%s/%.60s.log", dir, name);
        tails[n] = (struct tail){.file = fopen(path, "re")};
        snprintf(tails[n].name, sizeof(tails[n].name), "%.60s", name);
        if (tails[n].file != NULL) seek_lines(tails[n++].file, lines);
    }
    if (n == 0) rc = ctl_fail(c, 1, "no log of %s in %s", wanted != NULL ? wanted : "it", dir);
    const bool follow = ctl_option(c, "--follow") != NULL;
    do {
        for (int i = 0; i < n; i++) drain_tail(c, &tails[i], n > 1);
        if (follow && n > 0) ctl_sleep_ms(FOLLOW_MS);
    } while (follow && n > 0 && kill((pid_t)ctl_num(served, "pid"), 0) == 0);
    for (int i = 0; i < n; i++) {
        drain_tail(c, &tails[i], n > 1);
        fclose(tails[i].file);
    }
    return rc;
}

int ctl_cmd_logs(struct ctl *c) {
    char dir[512], n_text[24], unit[128];
    long lines = 20;
    if (!ctl_number(c, "--lines", 1, LINES_MAX, &lines)) return 2;
    struct json_value *served = ctl_served(dir);
    if (served != NULL) {
        const int rc = show_files(c, dir, served, lines);
        json_put(served);
        return rc;
    }
    if (access("/run/systemd/system", F_OK) != 0)
        return ctl_fail(c, 1,
                        "no `baton serve` of this user runs here, and there is no journal "
                        "(/run/systemd/system)");
    snprintf(n_text, sizeof(n_text), "%ld", lines);
    snprintf(unit, sizeof(unit), "baton-%.100s*", c->n_args > 0 ? c->args[0] : "");
    execlp("journalctl", "journalctl", "--no-pager", "-n", n_text, "-u", unit, "-o",
           c->json ? "json" : "short", ctl_option(c, "--follow") != NULL ? "-f" : "-q",
           (char *)NULL);
    return ctl_fail(c, 1, "journalctl cannot be run: %s", strerror(errno));
}
