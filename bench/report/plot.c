/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot.c - runs gnuplot with the script on its standard input and the picture as its output.
 */
#include "plot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"

enum {
    EXIT_NOT_THERE = 127
};

/* Becomes gnuplot, reading `in` and writing `out`. Its own start files are left out. */
static void
gnuplot_become(int in, int out)
{
    char *const words[] = {"gnuplot", "--default-settings", NULL};

    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(EXIT_NOT_THERE);
    execvp(words[0], words);
    _exit(EXIT_NOT_THERE);
}

/* Gives the whole script to a pipe whose reader may go away. */
static bool
script_write(int fd, const char *text, size_t size)
{
    struct sigaction before;
    struct sigaction ignore;
    bool is_fine = true;

    memset(&ignore, 0, sizeof(ignore));
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before);
    while (size > 0) {
        ssize_t count = write(fd, text, size);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            is_fine = false;
            break;
        }
        text += count;
        size -= (size_t)count;
    }
    sigaction(SIGPIPE, &before, NULL);
    return is_fine;
}

/* True when gnuplot took all of it and ended well. False: complained. */
static bool
gnuplot_run(const char *text, size_t size, int out)
{
    int ends[2];
    int wait_status = 0;
    bool is_written = false;
    pid_t child = -1;

    if (pipe2(ends, O_CLOEXEC) == 0) {
        fflush(stdout);
        child = fork();
        if (child == 0)
            gnuplot_become(ends[0], out);
        close(ends[0]);
        is_written = child > 0 && script_write(ends[1], text, size);
        close(ends[1]);
    }
    if (child < 0 || waitpid(child, &wait_status, 0) != child) {
        complain("cannot run gnuplot: %s", strerror(errno));
        return false;
    }
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == EXIT_NOT_THERE)
        complain("--plot needs gnuplot, and it is not there (Debian's package gnuplot-nox)");
    else if (!is_written || !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)
        complain("gnuplot could not draw the picture");
    else
        return true;
    return false;
}

bool
plot_can(void)
{
    int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    bool is_fine = out >= 0 && gnuplot_run("", 0, out);

    if (out >= 0)
        close(out);
    return is_fine;
}

bool
plot_begin(struct plot *plot, const char *title, int width, int height)
{
    memset(plot, 0, sizeof(*plot));
    plot->script = open_memstream(&plot->text, &plot->size);
    if (plot->script == NULL) {
        complain("there is no memory for a picture");
        return false;
    }
    fprintf(plot->script,
        "set terminal svg size %d,%d fixed background rgb 'white' font 'sans-serif,12'\n"
        "set title '%s' noenhanced\n"
        "set key outside right top Left reverse samplen 2\n"
        "set grid back lt 1 lw 0.5 lc rgb '#cccccc'\n"
        "set border 3\nset tics nomirror\nset tics scale 0.5\n"
        "set linetype 1 lc rgb '#1f77b4' lw 2 pt 7 ps 0.6\n"
        "set linetype 2 lc rgb '#ff7f0e' lw 2 pt 5 ps 0.6\n"
        "set linetype 3 lc rgb '#2ca02c' lw 2 pt 9 ps 0.7\n"
        "set linetype 4 lc rgb '#9467bd' lw 2 pt 11 ps 0.7\n"
        "set linetype 5 lc rgb '#8c564b' lw 2 pt 13 ps 0.7\n"
        "set linetype 6 lc rgb '#7f7f7f' lw 2 pt 6 ps 0.7\n",
        width, height, title);
    return true;
}

/* Whether the file ends as a picture does: gnuplot ends well on a disk that is full, too. */
static bool
picture_is_whole(int fd, off_t size)
{
    char tail[16] = "";
    off_t start = size > (off_t)sizeof(tail) ? size - (off_t)sizeof(tail) + 1 : 0;

    return pread(fd, tail, sizeof(tail) - 1, start) > 0 && strstr(tail, "</svg>") != NULL;
}

/* Into the file at `path`, which is removed when it does not become a whole picture; what is no
 * file, a device say, is left alone. */
static bool
picture_draw(const struct plot *plot, const char *path)
{
    struct stat facts = {.st_mode = 0};
    int out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool is_fine = out >= 0;

    if (!is_fine) {
        complain("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    is_fine = gnuplot_run(plot->text, plot->size, out);
    if (fstat(out, &facts) == 0 && S_ISREG(facts.st_mode)) {
        if (is_fine && !picture_is_whole(out, facts.st_size)) {
            complain("cannot write all of %s", path);
            is_fine = false;
        }
        if (!is_fine)
            unlink(path);
    }
    close(out);
    return is_fine;
}

bool
plot_end(struct plot *plot, const char *path)
{
    bool is_fine = fclose(plot->script) == 0 && plot->text != NULL;

    if (!is_fine)
        complain("there is no memory for a picture");
    else
        is_fine = picture_draw(plot, path);
    free(plot->text);
    memset(plot, 0, sizeof(*plot));
    return is_fine;
}
