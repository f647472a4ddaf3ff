/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_screen.c - the whole terminal for one command, with plain ANSI sequences.
 *
 * Whatever ends the program leaves the terminal as it was: the end of screen_leave(), exit(), and
 * each signal that ends a process, whose handler uses only calls that are safe in one.
 */
#include "kvtool_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "complain.h"

enum {
    LINE_BYTES = 512,
    PICTURE_BYTES = 64 << 10
};

/* The other screen, no cursor, no wrapping; and back. */
static const char enter_text[] = "\033[?1049h\033[?25l\033[?7l";
static const char leave_text[] = "\033[?7h\033[?25h\033[?1049l";

static const int ending_signals[] = {
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

/* The terminal before screen_enter(); static because signal handlers need it. */
static struct termios before;
static volatile sig_atomic_t is_entered;

static struct {
    char bytes[PICTURE_BYTES];
    size_t size;
    unsigned rows, columns;
    unsigned row;
} picture;

/* Safe in a signal handler. */
static void
terminal_restore(void)
{
    int error = errno;

    if (is_entered) {
        is_entered = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
        if (write(STDOUT_FILENO, leave_text, sizeof(leave_text) - 1) < 0)
            errno = 0; /* The terminal is gone: nobody to tell. */
    }
    errno = error;
}

/* Safe in a signal handler. */
static void
terminal_take(void)
{
    struct termios ours = before;

    ours.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    ours.c_cc[VMIN] = 0;
    ours.c_cc[VTIME] = 0;
    is_entered = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &ours);
    if (write(STDOUT_FILENO, enter_text, sizeof(enter_text) - 1) < 0)
        errno = 0; /* Drawing will fail, too, and says so. */
}

static void
ending_handle(int number)
{
    terminal_restore();
    signal(number, SIG_DFL);
    raise(number);
}

/* Ctrl-Z: the shell gets its terminal, and we get it back when we go on. */
static void
stop_handle(int number)
{
    int error = errno;

    (void)number;
    terminal_restore();
    raise(SIGSTOP);
    terminal_take();
    errno = error;
}

static void
size_handle(int number)
{
    (void)number; /* It ends the wait for a key, and that is enough. */
}

static void
signals_take(void)
{
    struct sigaction action = {.sa_handler = ending_handle};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(ending_signals) / sizeof(ending_signals[0]); i++)
        sigaction(ending_signals[i], &action, NULL);
    action.sa_handler = stop_handle;
    sigaction(SIGTSTP, &action, NULL);
    action.sa_handler = size_handle;
    sigaction(SIGWINCH, &action, NULL);
}

bool
screen_is_possible(void)
{
    const char *kind = getenv("TERM");

    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && kind != NULL &&
           strcmp(kind, "dumb") != 0;
}

bool
screen_enter(void)
{
    if (tcgetattr(STDIN_FILENO, &before) != 0) {
        complain("the terminal cannot be used: %s", strerror(errno));
        return false;
    }
    if (atexit(terminal_restore) != 0) {
        complain("there is no memory to use the terminal");
        return false;
    }
    signals_take();
    terminal_take();
    return true;
}

void
screen_leave(void)
{
    terminal_restore();
}

/* --- Drawing ---------------------------------------------------------------------------------- */

static void
picture_add(const char *text, size_t size)
{
    if (size <= sizeof(picture.bytes) - picture.size) {
        memcpy(picture.bytes + picture.size, text, size);
        picture.size += size;
    }
}

void
screen_begin(void)
{
    struct winsize size = {0};

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    picture.size = 0;
    picture.row = 0;
    picture.rows = size.ws_row;
    picture.columns = size.ws_col;
    picture_add("\033[H", 3);
}

void
screen_line(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    size_t length = 0;

    if (picture.row == picture.rows)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    for (; line[length] != '\0' && length < picture.columns; length++) {
        if ((unsigned char)line[length] < 0x20 || line[length] == 0x7F)
            line[length] = '?';
    }
    if (picture.row > 0)
        picture_add("\r\n", 2);
    picture_add(line, length);
    picture_add("\033[K", 3);
    picture.row++;
}

void
screen_end(void)
{
    size_t done = 0;

    picture_add("\033[J", 3);
    while (done < picture.size) {
        ssize_t written = write(STDOUT_FILENO, picture.bytes + done, picture.size - done);

        if (written < 0 && errno != EINTR)
            return; /* The next picture tries again; SIGHUP ends us when the terminal is gone. */
        done += written > 0 ? (size_t)written : 0;
    }
}

int
screen_wait(double seconds)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int milliseconds = seconds > 86400 ? 86400000 : (int)(seconds * 1000);
    int count = poll(&input, 1, milliseconds);
    char key = 0;

    if (count < 0)
        return 0;
    if (count == 0)
        return -1;
    if (read(STDIN_FILENO, &key, 1) == 1)
        return (unsigned char)key;
    return 'q'; /* The terminal has gone. */
}
