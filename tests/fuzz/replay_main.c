/* replay: runs a fuzz target over every file of the folders given, so that a plain build checks the
 * corpus too. Fails when there is no file at all: a check that saw nothing is no check. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 1: run, 0: not a regular file, -1: could not be read. */
static int run_file(const char *path) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (f == NULL) return -1;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        fclose(f);
        return 0;
    }
    /* A block of exactly this size, so that a sanitizer sees a read past the end. */
    size_t n = (size_t)st.st_size;
    uint8_t *data = malloc(n > 0 ? n : 1);
    int result = -1;
    if (data != NULL && fread(data, 1, n, f) == n) {
        LLVMFuzzerTestOneInput(data, n);
        result = 1;
    }
    free(data);
    fclose(f);
    return result;
}

static int run_dir(const char *dir, int *n_files) {
    DIR *d = opendir(dir);
    struct dirent *entry;
    int failed = 0;
    if (d == NULL) {
        perror(dir);
        return -1;
    }
    while ((entry = readdir(d)) != NULL) {
        char path[4096];
        if (snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >= (int)sizeof(path))
            continue;
        int r = run_file(path);
        if (r < 0) {
            perror(path);
            failed = -1;
        } else {
            *n_files += r;
        }
    }
    closedir(d);
    return failed;
}

int main(int argc, char **argv) {
    int n_files = 0, failed = 0;
    for (int i = 1; i < argc; i++)
        if (run_dir(argv[i], &n_files) != 0) failed = 1;
    printf("%s: %d files\n", argv[0], n_files);
    return failed != 0 || n_files == 0 ? 1 : 0;
}
