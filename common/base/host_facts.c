/* host_facts: see host_facts.h. */
#include "common/base/host_facts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>
#include "proto/json.h"

enum { PATH_BYTES = 1024 };

static FILE *file_below(const char *root, const char *path) {
    char full[PATH_BYTES];
    const int n = snprintf(full, sizeof(full), "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof(full) ? fopen(full, "re") : NULL;
}

/* The rest of the first line that begins with key, without white space and the colon before it;
 * false: there is none. */
static bool line_of(const char *root, const char *path, const char *key, char *out, size_t cap) {
    char line[512];
    bool found = false;
    FILE *f = file_below(root, path);
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *at = line + strlen(key);
        at += strspn(at, " \t:");
        snprintf(out, cap, "%.*s", (int)strcspn(at, "\n"), at);
        found = true;
    }
    fclose(f);
    return found;
}

static uint64_t number_of(const char *root, const char *path, const char *key) {
    char text[64];
    return line_of(root, path, key, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

static void read_memory(struct host_facts *f, const char *root) {
    static const char meminfo[] = "/proc/meminfo";
    char word[64];
    const uint64_t page = number_of(root, meminfo, "Hugepagesize") << 10;
    f->memory_bytes = number_of(root, meminfo, "MemTotal") << 10;
    f->memory_available = number_of(root, meminfo, "MemAvailable") << 10;
    f->huge_bytes = number_of(root, meminfo, "HugePages_Total") * page;
    f->huge_free_bytes = number_of(root, meminfo, "HugePages_Free") * page;
    if (line_of(root, "/sys/kernel/mm/transparent_hugepage/enabled", "", word, sizeof(word))) {
        const char *at = strchr(word, '[');
        if (at != NULL)
            snprintf(f->transparent, sizeof(f->transparent), "%.*s", (int)strcspn(at + 1, "]"),
                     at + 1);
    }
}

/* The control group of the process (version 2): its own folder, or the root where it sees itself
 * there. */
static void read_group(struct host_facts *f, const char *root) {
    char group[512] = "", path[768], text[64];
    (void)line_of(root, "/proc/self/cgroup", "0::", group, sizeof(group));
    for (int whole = 0; whole < 2; whole++) {
        const char *at = whole ? "" : group;
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", at);
        if (f->group_memory_max == 0 &&
            (f->group_memory_max = number_of(root, path, "")) > 0) { /* "max" reads as 0 */
            snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", at);
            f->group_memory_used = number_of(root, path, "");
        }
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", at);
        double quota = 0, period = 0;
        if (f->cpus_paid == 0 && line_of(root, path, "", text, sizeof(text)) &&
            sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0)
            f->cpus_paid = quota / period;
    }
}

static void read_process(struct host_facts *f, const char *root) {
    struct rlimit limit;
    char path[PATH_BYTES];
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        f->fds_max = limit.rlim_cur;
        f->fds_hard_max = limit.rlim_max;
    }
    snprintf(path, sizeof(path), "%.900s/proc/self/fd", root);
    DIR *d = opendir(path);
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) f->fds_open += e->d_name[0] != '.';
    closedir(d);
}

void host_facts_read(struct host_facts *f, const char *root) {
    struct timex clock = {0};
    cpu_set_t cpus;
    memset(f, 0, sizeof(*f));
    if (gethostname(f->name, sizeof(f->name) - 1) != 0) f->name[0] = 0;
    (void)line_of(root, "/proc/cpuinfo", "model name", f->cpu, sizeof(f->cpu));
    f->cpus_online = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    f->cpus_allowed = f->cpus_online;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        f->cpus_allowed = (unsigned)CPU_COUNT(&cpus);
    read_memory(f, root);
    read_group(f, root);
    read_process(f, root);
    f->clock_synchronised = adjtimex(&clock) != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
    if (f->clock_synchronised) f->clock_error_s = (double)clock.esterror * 1e-6;
    f->wmem_max_bytes = number_of(root, "/proc/sys/net/core/wmem_max", "");
}

static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64(v < INT64_MAX ? (int64_t)v : INT64_MAX));
}

struct json_value *host_facts_json(const struct host_facts *f) {
    struct json_value *o = json_new_obj(), *clock = json_new_obj();
    if (o == NULL || clock == NULL) {
        json_put(o);
        json_put(clock);
        return NULL;
    }
    json_obj_set(o, "name", json_new_str(f->name));
    json_obj_set(o, "cpu", json_new_str(f->cpu));
    add_u64(o, "cpusOnline", f->cpus_online);
    add_u64(o, "cpusAllowed", f->cpus_allowed);
    json_obj_set(o, "cpusPaid", json_new_f64(f->cpus_paid));
    add_u64(o, "memoryBytes", f->memory_bytes);
    add_u64(o, "memoryAvailable", f->memory_available);
    add_u64(o, "groupMemoryMax", f->group_memory_max);
    add_u64(o, "groupMemoryUsed", f->group_memory_used);
    json_obj_set(o, "transparentHugePages", json_new_str(f->transparent));
    add_u64(o, "hugePageBytes", f->huge_bytes);
    add_u64(o, "hugePageFreeBytes", f->huge_free_bytes);
    add_u64(o, "descriptorsMax", f->fds_max);
    add_u64(o, "descriptorsHardMax", f->fds_hard_max);
    add_u64(o, "descriptorsOpen", f->fds_open);
    add_u64(o, "socketBufferMax", f->wmem_max_bytes);
    json_obj_set(clock, "synchronised", json_new_bool(f->clock_synchronised));
    json_obj_set(clock, "errorSeconds", json_new_f64(f->clock_error_s));
    json_obj_set(o, "clock", clock);
    return o;
}

bool host_disk_free(const char *path, uint64_t *bytes) {
    char at[PATH_BYTES];
    struct statvfs st;
    if (snprintf(at, sizeof(at), "%s", path) >= (int)sizeof(at)) return false;
    while (access(at, F_OK) != 0) {
        char *slash = strrchr(at, '/');
        if (slash == NULL) return false;
        if (slash == at) slash++;
        if (*slash == 0) return false;
        *slash = 0;
    }
    if (access(at, W_OK) != 0 || statvfs(at, &st) != 0) return false;
    *bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return true;
}

unsigned host_mtu_of(const char *ip) {
    struct ifaddrs *all = NULL;
    struct in_addr want;
    char path[256];
    unsigned mtu = 0;
    if (inet_pton(AF_INET, ip, &want) != 1 || getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *a = all; a != NULL && mtu == 0; a = a->ifa_next) {
        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET) continue;
        struct sockaddr_in in;
        memcpy(&in, a->ifa_addr, sizeof(in));
        if (in.sin_addr.s_addr != want.s_addr &&
            !(in.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && (ntohl(want.s_addr) >> 24) == 127))
            continue;
        snprintf(path, sizeof(path), "/sys/class/net/%s/mtu", a->ifa_name);
        mtu = (unsigned)number_of("", path, "");
    }
    freeifaddrs(all);
    return mtu;
}

int host_facts_print(struct json_value *o) {
    const char *text = o != NULL ? json_to_text(o, JSON_COMPACT, NULL) : NULL;
    if (text != NULL) puts(text);
    json_put(o);
    return text != NULL ? 0 : 1;
}
