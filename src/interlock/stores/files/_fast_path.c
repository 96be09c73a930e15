/* A port of core/line.py for the most common steps of a line file: take a free lock, release it, wait and stay behind one
 * exclusive holder, hand over to the first waiter.  No Python code runs between the system calls of a step: a process
 * that has just woken runs Python five times slower than a busy one.
 *
 * Each function performs the same writes as the store with line.py, or returns "not done" without writing, and Python
 * performs the whole step.  One property test compares both with line.py.  Nothing here waits, except for the guard.  A
 * step keeps the GIL: it lasts some microseconds, and releasing the GIL at each system call would cost contending threads
 * more than the step.  The GIL is released while another process has the guard.
 *
 * On a free-threaded Python nothing here needs the GIL: there is no static state, the caller has the mutex of `line`, and
 * the dictionary, whose descriptors other threads may close, is empty (fast_path.py).
 */

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED /* a free-threaded Python has no stable ABI before 3.15 */
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* As in slots.py and line_file.py. */
#define SLOT 512
#define FENCE_AT 14
#define FENCE_WIDTH 16
#define UNTIL_AT 37
#define SINCE_AT 61
#define HELD_AT 84
#define MOMENT 17
#define ID_AT 105
#define ID_WIDTH 36
#define PIPE_AT 147
#define PIPE_WIDTH 6
#define TAIL_AT 176
#define MOST_NUMBER 9000000000000000LL
#define MICROS 1000000LL

#define SPINS 60
#define MOST_SPIN 5000 /* microseconds */
#define MOST_IDLE 8
#define PART (64 * SLOT) /* bytes of a line that are read at once */
#define MOST_BYTES (16 << 20)
#define MOST_TOKEN 80
#define MOST_NAME (MOST_TOKEN + 32)

/* Results of `enter`, besides a fence, and 0 for "not done". */
#define TAKEN (-1)
#define OTHERS_WAIT (-2)
#define GUARD_IS_BUSY (-3)

typedef struct {
    int fd;
    Py_ssize_t head, size;
    long long now, top; /* microseconds; the highest fence that a slot shows */
    Py_ssize_t held;    /* where the only holder stands; 0 for nobody, -1 for several */
    Py_ssize_t first, second, last; /* waiters; 0 for none */
    Py_ssize_t free;    /* where a claim can be written */
    Py_ssize_t mine;    /* the claim with the id of the caller; 0 for none */
    int places;         /* the number of claims */
    int busy;           /* 1 if another process has the guard */
    char missing[MOST_NAME]; /* the pipe of another process that is not open here, and that the step needs; "" for none */
    Py_ssize_t from, got; /* the part of the file that `data` has */
    char data[PART];
} Line;

typedef struct {
    long long fence, until;
    char token[MOST_TOKEN];
    long pipe;
} Slot;

static long long
clock_micros(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (long long)now.tv_sec * MICROS + now.tv_nsec / 1000;
}

/* -- what is in a slot ---------------------------------------------------------------------------------- */

/* Read exactly `width` digits; -1 if there is something else. */
static long long
digits(const char *text, int width)
{
    long long value = 0;
    for (int i = 0; i < width; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/* Read a moment, in microseconds; -1 if there is none. */
static long long
moment_at(const char *text)
{
    long long whole = digits(text, 10), part = digits(text + 11, 6);
    return whole < 0 || part < 0 || text[10] != '.' ? -1 : whole * MICROS + part;
}

static long long
fence_at(const char *slot)
{
    long long fence = digits(slot + FENCE_AT, FENCE_WIDTH);
    return fence < 0 || fence > MOST_NUMBER ? 0 : fence;
}

/* Parse the slot of an exclusive claim; 0 for any other slot, and for a damaged one. */
static int
read_slot(const char *text, Slot *slot)
{
    static const char units[] = "units=1/1 ttl=", once[] = " once=", alive[] = " alive=";
    slot->fence = digits(text + FENCE_AT, FENCE_WIDTH);
    slot->pipe = (long)digits(text + PIPE_AT, PIPE_WIDTH);
    slot->until = moment_at(text + UNTIL_AT);
    if (slot->fence < 0 || slot->fence > MOST_NUMBER || slot->until < 0 || slot->pipe < 0 ||
        memcmp(text + FENCE_AT - 6, "fence=", 6) ||
        memcmp(text + UNTIL_AT - 7, " until=", 7) || memcmp(text + ID_AT - 4, " id=", 4) ||
        memcmp(text + PIPE_AT - 6, " pipe=", 6) || memcmp(text + TAIL_AT, units, sizeof units - 1) ||
        text[SLOT - 1] != '\n')
        return 0;
    const char *at = text + TAIL_AT + sizeof units - 1;
    for (int width = 0; *at >= '0' && *at <= '9' && width < 16; width++)
        at++;
    if (memcmp(at, once, sizeof once - 1) || memcmp(at + sizeof once, alive, sizeof alive - 1))
        return 0;
    at += sizeof once + sizeof alive - 1;
    int size = 0;
    while (size < MOST_TOKEN && at[size] > ' ')
        size++;
    if (size == 0 || size == MOST_TOKEN || at[0] == '.')
        return 0; /* also for a detached claim, which has no process */
    memcpy(slot->token, at, size);
    slot->token[size] = 0;
    return 1;
}

static int
has_id(const char *slot, const char *id)
{
    return memcmp(slot + ID_AT, id, ID_WIDTH) == 0;
}

/* Copy an id, padded with spaces, into `padded`; 0 if it is too long for a slot. */
static int
pad(PyObject *id, char *padded)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(id, &size);
    PyErr_Clear();
    if (text == NULL || size == 0 || size > ID_WIDTH)
        return 0;
    memset(padded, ' ', ID_WIDTH);
    memcpy(padded, text, size);
    return 1;
}

static void
put_digits(char *text, long long value, int width)
{
    for (int at = width - 1; at >= 0; at--, value /= 10)
        text[at] = (char)('0' + value % 10);
}

static void
put_moment(char *text, long long micros)
{
    put_digits(text, micros / MICROS, 10);
    put_digits(text + 11, micros % MICROS, 6);
}

/* Write a claim that enters the line; return its fence, 0 if nothing was written. */
static long long
write_slot(const Line *line, Py_ssize_t at, const char *state, double ttl, const char *id, long pipe, const char *tail)
{
    static const char form[] =
        "        fence=0000000000000000 until=0000000000.000000 since=0000000000.000000 held=0000000000.000000 "
        "id=                                     pipe=000000 beat=000000 slot=0000 ";
    char text[SLOT];
    long long until = line->now + (long long)(ttl * 1e6), since = clock_micros(CLOCK_REALTIME);
    long long fence = line->top + 1 > since ? line->top + 1 : since;
    if (sizeof form != TAIL_AT + 1 || fence > MOST_NUMBER || !(ttl > 0))
        return 0;
    memcpy(text, form, TAIL_AT);
    memcpy(text, state, 8);
    put_digits(text + FENCE_AT, fence, FENCE_WIDTH);
    put_moment(text + UNTIL_AT, until);
    put_moment(text + SINCE_AT, since);
    put_moment(text + HELD_AT, state[0] == 'u' ? since : 0);
    memcpy(text + ID_AT, id, ID_WIDTH);
    put_digits(text + PIPE_AT, pipe, PIPE_WIDTH);
    memcpy(text + TAIL_AT, tail, SLOT - TAIL_AT);
    return pwrite(line->fd, text, SLOT, at) == SLOT ? fence : 0;
}

/* -- the file of a line --------------------------------------------------------------------------------- */

static long long
number_attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL)
        return -1;
    long long number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return number;
}

static void
unguard(Line *line)
{
    if (line->fd >= 0)
        flock(line->fd, LOCK_UN);
    line->fd = -1;
}

/* Take the guard; 0 if another process has it for long, -1 on an error. */
static int
take_guard(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 1;
    int taken = 0, busy = errno == EWOULDBLOCK;
    long long until = clock_micros(CLOCK_MONOTONIC) + MOST_SPIN;
    Py_BEGIN_ALLOW_THREADS
    for (int spins = 0; busy && !taken && spins < SPINS && clock_micros(CLOCK_MONOTONIC) < until; spins++) {
        sched_yield();
        taken = flock(fd, LOCK_EX | LOCK_NB) == 0;
        busy = errno == EWOULDBLOCK;
    }
    Py_END_ALLOW_THREADS
    return taken ? 1 : busy ? 0 : -1;
}

/* Find the holder and the waiters, part by part; `id` is the padded id of a claim that enters, or NULL.  Return 0 if the
 * file has no whole slots, or is too long. */
static int
survey(Line *line, const char *id)
{
    long long first = 0, second = 0, last = 0; /* fences */
    line->held = line->first = line->second = line->last = line->free = 0;
    line->top = 0;
    line->mine = line->places = 0;
    line->size = line->head;
    while (1) {
        Py_ssize_t end = line->from + line->got;
        for (; line->size + SLOT <= end; line->size += SLOT) {
            const char *slot = line->data + (line->size - line->from);
            Py_ssize_t at = line->size;
            long long fence = fence_at(slot);
            line->top = fence > line->top ? fence : line->top;
            if (memcmp(slot, "using   ", 8) == 0) {
                line->held = line->held ? -1 : at;
            } else if (memcmp(slot, "pending ", 8) == 0) {
                if (!line->first || fence < first) {
                    line->second = line->first, second = first;
                    line->first = at, first = fence;
                } else if (!line->second || fence < second) {
                    line->second = at, second = fence;
                }
                if (!line->last || fence > last)
                    line->last = at, last = fence;
            } else {
                line->free = line->free ? line->free : at;
                continue;
            }
            line->places++;
            if (id != NULL && has_id(slot, id))
                line->mine = at;
        }
        if (line->size != end || end > MOST_BYTES)
            return 0;
        if (line->got < PART)
            break;
        line->from = end;
        line->got = pread(line->fd, line->data, PART, end);
        if (line->got < 0)
            return 0;
    }
    line->free = line->free ? line->free : line->size;
    return 1;
}

/* Return the waiter directly before a fence; 0 for none. */
static Py_ssize_t
waiter_before(Line *line, long long fence)
{
    Py_ssize_t before = 0;
    long long highest = 0;
    for (Py_ssize_t at = line->head; at < line->size; at += SLOT) {
        if (at < line->from || at >= line->from + line->got) {
            line->from = at;
            line->got = pread(line->fd, line->data, PART, at);
            if (line->got < SLOT)
                return 0;
        }
        const char *slot = line->data + (at - line->from);
        long long found = fence_at(slot);
        if (memcmp(slot, "pending ", 8) == 0 && found < fence && found > highest)
            before = at, highest = found;
    }
    return before;
}

/* Copy a slot; 0 if it cannot be read. */
static int
copy_slot(const Line *line, Py_ssize_t at, char *text)
{
    if (at < line->from || at >= line->from + line->got)
        return pread(line->fd, text, SLOT, at) == SLOT;
    memcpy(text, line->data + (at - line->from), SLOT);
    return 1;
}

/* Take the guard and read the file, whose content begins with `head`; 0, without the guard, if Python must perform the
 * step.  If the program closed the descriptor, it may be another file's now, which has another offset (line_file.py). */
static int
guard(int fd, long long mark, const char *head, int pid, const char *id, Line *line)
{
    line->fd = fd;
    if (getpid() != pid || lseek(fd, 0, SEEK_CUR) != mark)
        return 0;
    int taken = take_guard(fd);
    line->busy = taken == 0;
    if (taken <= 0)
        return 0;
    line->from = 0;
    line->got = pread(fd, line->data, PART, 0);
    if (line->got < line->head || memcmp(line->data, head, line->head) || !survey(line, id)) {
        unguard(line);
        return 0;
    }
    line->now = clock_micros(CLOCK_MONOTONIC);
    return 1;
}

/* Return the descriptor of another process's pipe; -1, with its name in `missing`, if it is not open here, is another
 * file's now, or has no name. */
static int
pipe_of(Line *line, const char *name, PyObject *others)
{
    struct stat found;
    PyObject *pipe = PyDict_GetItemString(others, name);
    int fd = pipe == NULL ? -1 : (int)number_attribute(pipe, "fd");
    if (fd < 0 || fstat(fd, &found) < 0 || found.st_nlink < 1 ||
        found.st_ino != (ino_t)number_attribute(pipe, "inode") ||
        found.st_dev != (dev_t)number_attribute(pipe, "device")) {
        snprintf(line->missing, sizeof line->missing, "%s", name);
        return -1;
    }
    return fd;
}

/* Parse an exclusive claim whose lease has not expired and whose process lives; 0 for any other, and if the liveness
 * pipe of its process is not open here yet. */
static int
read_live(Line *line, Py_ssize_t at, Slot *slot, const char *token, PyObject *others)
{
    char text[SLOT];
    if (!copy_slot(line, at, text) || !read_slot(text, slot) || slot->until <= line->now)
        return 0;
    if (strcmp(slot->token, token) == 0)
        return 1;
    int fd = pipe_of(line, slot->token, others);
    if (fd < 0)
        return 0;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        flock(fd, LOCK_UN);
        return 0;
    }
    return errno == EWOULDBLOCK;
}

/* -- the steps ------------------------------------------------------------------------------------------ */

/* Return 0; or the name of a pipe, so that Python can open it and call again. */
static PyObject *
not_done(const Line *line)
{
    return line->missing[0] ? PyUnicode_FromString(line->missing) : PyLong_FromLong(0);
}

/* Extend the lease of a waiter, and read the claim whose death it must notice, `before`; 0 if nothing was done. */
static int
stay(Line *line, double ttl, long pipe, Slot *before, const char *token, PyObject *others)
{
    Slot mine, first, last;
    char text[SLOT];
    if (!line->mine || line->mine == line->held || !copy_slot(line, line->mine, text) ||
        !read_live(line, line->mine, &mine, token, others) || strcmp(mine.token, token))
        return 0;
    if (line->mine != line->first) {
        if (!read_live(line, line->first, &first, token, others) || !read_live(line, line->last, &last, token, others))
            return 0;
        Py_ssize_t at = waiter_before(line, mine.fence);
        if (!at || !read_live(line, at, before, token, others))
            return 0;
    }
    long long until = line->now + (long long)(ttl * 1e6);
    put_moment(text + UNTIL_AT, until > mine.until ? until : mine.until);
    put_digits(text + PIPE_AT, pipe, PIPE_WIDTH);
    return pwrite(line->fd, text, SLOT, line->mine) == SLOT;
}

static PyObject *
enter(PyObject *module, PyObject *args)
{
    PyObject *id, *others;
    const char *head, *tail, *token;
    Py_ssize_t tail_size;
    double ttl;
    int fd, capacity, pid, queued;
    long pipe;
    long long mark;
    char padded[ID_WIDTH];
    Line line;
    Slot holder = {0}, first, before;
    if (!PyArg_ParseTuple(args, "iLy#Oidy#lsO!ii", &fd, &mark, &head, &line.head, &id, &capacity, &ttl, &tail,
                          &tail_size, &pipe, &token, &PyDict_Type, &others, &pid, &queued))
        return NULL;
    long long answer = 0;
    int waits = 0;
    line.missing[0] = line.busy = 0;
    if (tail_size == SLOT - TAIL_AT && pad(id, padded) && guard(fd, mark, head, pid, padded, &line)) {
        int lives = (pipe || !line.first) && (queued || !line.mine) && line.held > 0 &&
                    read_live(&line, line.held, &holder, token, others);
        int free = line.held == 0 && !line.first && (line.top > 0 || line.size == line.head); /* no fence is damaged */
        before = holder;
        if (queued) {
            waits = lives && stay(&line, ttl, pipe, &before, token, others);
        } else if (free) {
            answer = write_slot(&line, line.head, "using   ", ttl, padded, 0, tail);
        } else if (pipe) {
            /* Python removes a dead claim at the head of the line, or just before the new place. */
            waits = lives && (!line.first || (read_live(&line, line.first, &first, token, others) &&
                                              read_live(&line, line.last, &before, token, others)));
            waits = waits && write_slot(&line, line.free, "pending ", ttl, padded, pipe, tail) > 0;
        } else {
            answer = line.first ? OTHERS_WAIT : lives && capacity == 1 ? TAKEN : 0;
        }
        unguard(&line);
    }
    if (PyErr_Occurred())
        return NULL;
    if (waits)
        return Py_BuildValue("sLi", before.token, holder.until - line.now, line.places + !queued);
    return answer || line.busy ? PyLong_FromLongLong(line.busy ? GUARD_IS_BUSY : answer) : not_done(&line);
}

/* Hand over to the first waiter; return its id and fence if it is in this process, else 2; 0 if Python must do it. */
static PyObject *
hand_over(Line *line, const char *token, PyObject *others)
{
    Slot slot, head;
    char text[SLOT], message[ID_WIDTH + 32], name[MOST_NAME];
    const char *id = text + ID_AT;
    if (!read_live(line, line->first, &slot, token, others) ||
        (line->second && !read_live(line, line->second, &head, token, others)) ||
        !copy_slot(line, line->first, text))
        return not_done(line); /* Python removes a dead waiter that comes to the head of the line */
    int mine = strcmp(slot.token, token) == 0, size = ID_WIDTH;
    snprintf(name, sizeof name, "%s.%ld", slot.token, slot.pipe);
    int pipe = mine ? -1 : pipe_of(line, name, others);
    if ((!mine && pipe < 0) || pwrite(line->fd, "done    ", 8, line->held) != 8)
        return not_done(line);
    while (size > 0 && id[size - 1] == ' ')
        size--;
    if (!mine) {
        memcpy(message, id, size);
        int whole = size + snprintf(message + size, 32, " %lld 0\n", slot.fence);
        if (write(pipe, message, whole) < 0)
            errno = 0; /* the process is gone, or its pipe is full and wakes it anyway */
    }
    long long held = clock_micros(CLOCK_REALTIME);
    memcpy(text, "using   ", 8);
    put_moment(text + HELD_AT, held);
    /* If this write fails, the next step on the line promotes the waiter. */
    if (pwrite(line->fd, text, ID_AT, line->first) < 0)
        errno = 0;
    unguard(line);
    return mine ? Py_BuildValue("s#L", id, (Py_ssize_t)size, slot.fence) : PyLong_FromLong(2);
}

static PyObject *
leave(PyObject *module, PyObject *args)
{
    PyObject *id, *others, *answer = NULL;
    const char *head, *token;
    int fd, capacity, pid;
    long long mark;
    char padded[ID_WIDTH], held[SLOT];
    Line line;
    if (!PyArg_ParseTuple(args, "iLy#OisO!i", &fd, &mark, &head, &line.head, &id, &capacity, &token, &PyDict_Type, &others,
                          &pid))
        return NULL;
    line.missing[0] = line.busy = 0;
    if (pad(id, padded) && guard(fd, mark, head, pid, NULL, &line)) {
        if (line.held > 0 && copy_slot(&line, line.held, held) && has_id(held, padded) &&
            moment_at(held + UNTIL_AT) > line.now) {
            if (!line.first && line.size <= line.head + MOST_IDLE * SLOT)
                answer = PyLong_FromLong(pwrite(line.fd, "done    ", 8, line.held) == 8);
            else if (line.first && capacity == 1)
                answer = hand_over(&line, token, others);
        }
        unguard(&line);
    }
    if (PyErr_Occurred()) {
        Py_XDECREF(answer);
        return NULL;
    }
    return answer == NULL ? PyLong_FromLong(0) : answer;
}

static PyMethodDef methods[] = {
    {"enter", enter, METH_VARARGS,
     "enter($module, fd, mark, head, id, capacity, ttl, tail, pipe, token, others, pid, queued, /)\n--\n\n"
     "Take a free lock, or stand in line where there is a pipe to wait at (0: none); if `queued`, stay in line.\n\n"
     "Return its fence, 0 (not done), -1 (taken), -2 (others wait), -3 (the guard is busy); in line, whose death\n"
     "matters, the microseconds until the holder's lease ends, and the number of claims; or, not done, the pipe to\n"
     "open first."},
    {"leave", leave, METH_VARARGS,
     "leave($module, fd, mark, head, id, capacity, token, others, pid, /)\n--\n\n"
     "Leave a line; return 0 (not done), 1, 2 (told another process), who of this process holds, and its fence; or,\n"
     "not done, the pipe to open first."},
    {NULL, NULL, 0, NULL},
};

/* Raise it with each change of the arguments or results, here and in fast_path.py: a checkout that is updated keeps an
   older compiled file. */
#define INTERFACE 2

static int
add_interface(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_interface},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fast_path", "The commonest steps, compiled.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__fast_path(void)
{
    return PyModuleDef_Init(&definition);
}
