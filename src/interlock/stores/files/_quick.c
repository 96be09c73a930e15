/* The fast paths of fastpath.py, compiled: one step of a line without an interpreter between its system calls.
 *
 * Each writes the slots that the functions of the same names in quick.py write (times and fences are those of the
 * moment), or nothing at all: then it says so, and those take the step from its beginning.  Property tests hold both
 * to the plan.  Nothing here waits, but for the guard.  A step is done while the interpreter's own lock is held: it
 * lasts some microseconds, and giving that lock away at each system call would cost threads that contend more than the
 * step.  It is given away while another process has the guard.
 *
 * On a free-threaded Python nothing here needs that lock: there is no static state, `line` is read under the mutex that
 * its caller has, and the dictionaries, whose descriptors other threads close, are empty ones then (compiled.py).
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

/* As in record.py, quick.py and linefile.py; LAYOUT lets a test compare them. */
#define SLOT 512
#define WAITING_AT 36
#define NUMBER_AT 15
#define NUMBER_WIDTH 16
#define NUMBER_END (NUMBER_AT + NUMBER_WIDTH)
#define UNTIL_AT 38
#define UNTIL_WIDTH 17
#define MOST_UNTIL 1e10
#define ID_AT 90
#define ID_WIDTH 36
#define PIPE_AT (ID_AT + ID_WIDTH + 6)
#define PIPE_WIDTH 6
#define TAIL_AT 139
#define MOST_NUMBER 9000000000000000LL

#define SPINS 60
#define MOST_SPIN 0.005
#define TRUST 0.02
#define MOST_IDLE 8
#define MOST_USING (16 * SLOT)
#define MOST_PENDING (64 * SLOT)
#define MOST_TOKEN 80

/* Answers of `enter` beside a fence and 0, which means: not done. */
#define TAKEN (-1)
#define OTHERS_WAIT (-2)

typedef struct {
    int fd, pending_fd;
    Py_ssize_t head;
    Py_ssize_t size;
    char data[MOST_USING];
    Py_ssize_t waits;
    char pending[MOST_PENDING];
} Line;

typedef struct {
    long long number;
    double until;
    char token[MOST_TOKEN];
    long pipe;
} Slot;

/* Names of attributes: the module's state. */
typedef struct {
    PyObject *fd, *pending_fd, *heads, *trusted, *retired, *places;
} Names;

static double
monotonic_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
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

static long long
number_at(const char *slot)
{
    long long number = digits(slot + NUMBER_AT, NUMBER_WIDTH);
    return number < 0 || number > MOST_NUMBER ? 0 : number;
}

/* Read a slot of a claim that takes the whole of an exclusive lock; 0 if it is another, or not written by us. */
static int
read_slot(const char *text, Slot *slot)
{
    slot->number = digits(text + NUMBER_AT, NUMBER_WIDTH);
    long long whole = digits(text + UNTIL_AT, 10), part = digits(text + UNTIL_AT + 11, 6);
    slot->pipe = (long)digits(text + PIPE_AT, PIPE_WIDTH);
    if (slot->number < 0 || slot->number > MOST_NUMBER || whole < 0 || part < 0 || slot->pipe < 0)
        return 0;
    slot->until = (double)whole + (double)part * 1e-6;
    static const char units[] = "units=1/1 alive=";
    if (memcmp(text + NUMBER_AT - 7, "number=", 7) || memcmp(text + NUMBER_END, " until=", 7) ||
        text[UNTIL_AT + 10] != '.' || memcmp(text + UNTIL_AT + UNTIL_WIDTH, " since=", 7) ||
        memcmp(text + ID_AT - 4, " id=", 4) || memcmp(text + PIPE_AT - 6, " bell=", 6) ||
        memcmp(text + TAIL_AT, units, sizeof units - 1) || text[SLOT - 1] != '\n')
        return 0;
    const char *token = text + TAIL_AT + sizeof units - 1;
    int size = 0;
    while (size < MOST_TOKEN && token[size] > ' ')
        size++;
    if (size == 0 || size == MOST_TOKEN || token[size] != ' ' || token[0] == '.')
        return 0;
    memcpy(slot->token, token, size);
    slot->token[size] = 0;
    return 1;
}

/* Put an id, padded, into `padded`; 0 if it is longer than a slot has room for. */
static int
pad(PyObject *id, char *padded)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(id, &size);
    if (text == NULL) {
        PyErr_Clear();
        return 0;
    }
    if (size == 0 || size > ID_WIDTH)
        return 0;
    memset(padded, ' ', ID_WIDTH);
    memcpy(padded, text, size);
    return 1;
}

static void
since_now(char *text)
{
    struct timespec now;
    struct tm day;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    size_t size = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(text + size, 32 - size, ".%03ldZ", now.tv_nsec / 1000000);
}

/* Write the text of a slot; 0 if something does not fit. */
static int
write_slot(char *slot, const char *state, long long number, double until, const char *id, long pipe, const char *tail)
{
    char since[32], text[SLOT];
    if (!(until >= 0 && until < MOST_UNTIL))
        return 0;
    since_now(since);
    long long micros = (long long)(until * 1e6 + 0.5); /* %f would write the comma of a German locale */
    int size = snprintf(text, sizeof text, "%-8snumber=%016lld until=%010lld.%06lld since=%s id=%.*s bell=%06ld ",
                        state, number, micros / 1000000, micros % 1000000, since, ID_WIDTH, id, pipe);
    if (size != TAIL_AT || number > MOST_NUMBER)
        return 0;
    memcpy(slot, text, TAIL_AT);
    memcpy(slot + TAIL_AT, tail, SLOT - TAIL_AT);
    return 1;
}

/* Issue a fence that is higher than `top`, and than all that an emptied folder has forgotten. */
static long long
new_fence(long long top)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long long micros = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    return top + 1 > micros ? top + 1 : micros;
}

/* -- the files of a line -------------------------------------------------------------------------------- */

static int
int_attribute(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return -1;
    long number = PyLong_AsLong(value);
    Py_DECREF(value);
    return (int)number;
}

/* Give the guard back, unless that is done already. */
static void
unguard(Line *line)
{
    if (line->fd >= 0)
        flock(line->fd, LOCK_UN);
    line->fd = -1;
}

static int
take_guard(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 1;
    int taken = 0, busy = errno == EWOULDBLOCK;
    double until = monotonic_now() + MOST_SPIN;
    Py_BEGIN_ALLOW_THREADS
    for (int spins = 0; busy && !taken && spins < SPINS && monotonic_now() < until; spins++) {
        sched_yield();
        taken = flock(fd, LOCK_EX | LOCK_NB) == 0;
        busy = errno == EWOULDBLOCK;
    }
    Py_END_ALLOW_THREADS
    return taken;
}

/* As `_read_carefully`, of a file that is sound: tell whether all is where it was when it was opened. */
static int
still_there(const Names *names, PyObject *object)
{
    PyObject *places = PyObject_GetAttr(object, names->places);
    int there = places != NULL && PyTuple_Check(places);
    Py_ssize_t count = there ? PyTuple_Size(places) : 0;
    for (Py_ssize_t row = 0; there && row < count; row++) {
        const char *path;
        unsigned long long device, inode;
        struct stat found;
        PyObject *place = PyTuple_GetItem(places, row);
        there = PyTuple_Check(place) && PyArg_ParseTuple(place, "yKK", &path, &device, &inode) &&
                lstat(path, &found) == 0 && found.st_dev == device && found.st_ino == inode;
    }
    Py_XDECREF(places);
    PyObject *moment = there ? PyFloat_FromDouble(monotonic_now() + TRUST) : NULL;
    if (moment == NULL)
        return 0;
    int done = PyObject_SetAttr(object, names->trusted, moment) == 0;
    Py_DECREF(moment);
    return done;
}

/* Tell whether the head of using/NAME is one of the two that it may be. */
static int
is_sound(PyObject *heads, Line *line)
{
    for (Py_ssize_t which = 0; which < 2; which++) {
        char *head;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(heads, which), &head, &line->head) < 0)
            return 0;
        if (line->size >= line->head && line->size < MOST_USING && (line->size - line->head) % SLOT == 0 &&
            memcmp(line->data, head, line->head) == 0)
            return 1;
    }
    return 0;
}

/* Take the guard and read using/NAME; 0 without the guard if a fast path can't be taken. */
static int
guard(const Names *names, PyObject *object, Line *line)
{
    line->fd = int_attribute(object, names->fd);
    line->pending_fd = int_attribute(object, names->pending_fd);
    PyObject *retired = PyObject_GetAttr(object, names->retired);
    PyObject *trusted = PyObject_GetAttr(object, names->trusted);
    PyObject *heads = PyObject_GetAttr(object, names->heads);
    int taken = 0;
    if (line->fd >= 0 && retired == Py_False && trusted != NULL && heads != NULL && take_guard(line->fd)) {
        line->size = pread(line->fd, line->data, MOST_USING, 0);
        taken = is_sound(heads, line) &&
                (monotonic_now() < PyFloat_AsDouble(trusted) || still_there(names, object));
        if (!taken)
            unguard(line);
    }
    Py_XDECREF(retired);
    Py_XDECREF(trusted);
    Py_XDECREF(heads);
    return taken;
}

static int
read_pending(Line *line)
{
    if (line->pending_fd < 0)
        return 0;
    line->waits = pread(line->pending_fd, line->pending, MOST_PENDING, 0);
    return line->waits >= 0 && line->waits < MOST_PENDING && line->waits % SLOT == 0;
}

/* Tell whether the token_fd of a claim's process is locked; 0 also if it is not open here yet. */
static int
lives(const Slot *slot, const char *token, PyObject *others)
{
    if (slot->until <= monotonic_now())
        return 0;
    if (strcmp(slot->token, token) == 0)
        return 1;
    PyObject *token_fd = PyDict_GetItemString(others, slot->token);
    int fd = token_fd == NULL ? -1 : (int)PyLong_AsLong(token_fd);
    if (fd < 0)
        return 0;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        flock(fd, LOCK_UN);
        return 0;
    }
    if (errno != EWOULDBLOCK)
        return 0;
    struct stat status; /* what was removed from alive/ proves nothing any more */
    return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

/* -- the ways ------------------------------------------------------------------------------------------- */

/* Tell whether the only holder has the lock for itself, and lives. */
static int
is_taken(const Line *line, const char *id, const char *token, PyObject *others, Slot *holder)
{
    const char *held = line->data + line->head;
    return line->size == line->head + SLOT && memcmp(held, "using ", 6) == 0 && read_slot(held, holder) &&
           lives(holder, token, others) && memcmp(held + ID_AT, id, ID_WIDTH) != 0;
}

/* Return the highest number in using/NAME; -1 if somebody holds. */
static long long
top_of(const Line *line)
{
    long long top = 0;
    for (Py_ssize_t at = line->head; at < line->size; at += SLOT) {
        if (memcmp(line->data + at, "using   number=", 15) == 0)
            return -1;
        long long number = number_at(line->data + at);
        top = number > top ? number : top;
    }
    return top;
}

static PyObject *
enter(PyObject *module, PyObject *args)
{
    PyObject *object, *id, *others;
    const char *tail, *token;
    Py_ssize_t tail_size;
    double ttl;
    int capacity;
    char padded[ID_WIDTH], slot[SLOT];
    Line line;
    Slot holder;
    if (!PyArg_ParseTuple(args, "OOidy#sO!", &object, &id, &capacity, &ttl, &tail, &tail_size, &token, &PyDict_Type,
                          &others))
        return NULL;
    long long answer = 0;
    if (tail_size == SLOT - TAIL_AT && pad(id, padded) && guard(PyModule_GetState(module), object, &line)) {
        long long top = top_of(&line);
        if (line.data[WAITING_AT] != '0') {
            answer = OTHERS_WAIT;
        } else if (top < 0) {
            answer = capacity == 1 && is_taken(&line, padded, token, others, &holder) ? TAKEN : 0;
        } else if (top > 0) { /* else the folder's floor is to be asked */
            answer = new_fence(top);
            if (!write_slot(slot, "using", answer, monotonic_now() + ttl, padded, 0, tail) ||
                pwrite(line.fd, slot, SLOT, line.head) != SLOT)
                answer = 0;
        }
        unguard(&line);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(answer);
}

/* Tell whether the waiter at `at` stands before the one at `than`, if there is one. */
static int
is_before(const Line *line, Py_ssize_t at, Py_ssize_t than)
{
    return than < 0 || memcmp(line->pending + at + NUMBER_AT, line->pending + than + NUMBER_AT, NUMBER_WIDTH) < 0;
}

/* Return where the waiter stands that is the first after `after`, or the first of all; -1 if there is none. */
static Py_ssize_t
find_first(const Line *line, Py_ssize_t after)
{
    Py_ssize_t found = -1;
    for (Py_ssize_t at = 0; at < line->waits; at += SLOT)
        if (at != after && memcmp(line->pending + at, "pending ", 8) == 0 && is_before(line, at, found) &&
            (after < 0 || !is_before(line, at, after)))
            found = at;
    return found;
}

/* Return where the last waiter stands; -1 if there is none. */
static Py_ssize_t
find_last(const Line *line)
{
    Py_ssize_t found = -1;
    for (Py_ssize_t at = 0; at < line->waits; at += SLOT)
        if (memcmp(line->pending + at, "pending ", 8) == 0 && (found < 0 || is_before(line, found, at)))
            found = at;
    return found;
}

/* Tell whether the claim at `at` is one that these ways may pass over: exclusive, and of a live process. */
static int
waits_alive(const Line *line, Py_ssize_t at, Slot *slot, const char *token, PyObject *others)
{
    return read_slot(line->pending + at, slot) && lives(slot, token, others);
}

/* Plan a place at the end of the line; 0 if that is less simple. */
static int
find_place(const Line *line, const char *id, const char *token, PyObject *others, Slot *holder, Slot *before,
           Py_ssize_t *free)
{
    const char *held = line->data + line->head;
    if (!is_taken(line, id, token, others, holder))
        return 0;
    *free = line->waits;
    for (Py_ssize_t at = line->waits - SLOT; at >= 0; at -= SLOT) {
        const char *slot = line->pending + at;
        if (memcmp(slot, "pending ", 8))
            *free = at;
        else if (memcmp(slot + ID_AT, id, ID_WIDTH) == 0 || memcmp(slot + ID_AT, held + ID_AT, ID_WIDTH) == 0)
            return 0;
    }
    Py_ssize_t last = find_last(line);
    if (last < 0) {
        *before = *holder;
        before->number = 0;
        return 1;
    }
    /* A dead one at the head is cleared away by the plan, and so is one before the new place. */
    Slot head;
    return waits_alive(line, find_first(line, -1), &head, token, others) &&
           waits_alive(line, last, before, token, others);
}

static PyObject *
join(PyObject *module, PyObject *args)
{
    PyObject *object, *id, *others;
    const char *tail, *token;
    Py_ssize_t tail_size, free;
    double ttl;
    long pipe;
    char padded[ID_WIDTH], slot[SLOT];
    Line line;
    Slot holder, before;
    if (!PyArg_ParseTuple(args, "OOdy#lsO!", &object, &id, &ttl, &tail, &tail_size, &pipe, &token, &PyDict_Type,
                          &others))
        return NULL;
    int joined = 0;
    double now = monotonic_now();
    if (tail_size == SLOT - TAIL_AT && pad(id, padded) && guard(PyModule_GetState(module), object, &line)) {
        if (read_pending(&line) && find_place(&line, padded, token, others, &holder, &before, &free) &&
            write_slot(slot, "pending", before.number + 1, now + ttl, padded, pipe, tail)) {
            joined = pwrite(line.pending_fd, slot, SLOT, free) == SLOT;
            if (joined && line.data[WAITING_AT] == '0')
                joined = pwrite(line.fd, "1", 1, WAITING_AT) == 1;
        }
        unguard(&line);
    }
    if (PyErr_Occurred())
        return NULL;
    return joined ? Py_BuildValue("sd", before.token, holder.until - now) : Py_NewRef(Py_None);
}

/* Return the pipe of a pipe of this process, or of another; -1 if it is not open, or its name is gone. */
static int
pipe_of(const Names *names, const Slot *slot, int mine, PyObject *others, PyObject *wakeups)
{
    if (!mine) {
        char name[MOST_TOKEN + 32];
        struct stat status;
        snprintf(name, sizeof name, "%s.%ld", slot->token, slot->pipe);
        PyObject *open = PyDict_GetItemString(others, name);
        int fd = open == NULL ? -1 : (int)PyLong_AsLong(open);
        return fd < 0 || fstat(fd, &status) < 0 || status.st_nlink == 0 ? -1 : fd;
    }
    PyObject *number = PyLong_FromLong(slot->pipe);
    PyObject *pipe = number == NULL ? NULL : PyDict_GetItem(wakeups, number);
    Py_XDECREF(number);
    return pipe == NULL ? -1 : int_attribute(pipe, names->fd);
}

static void
ring(int fd, const char *id, long long fence)
{
    char message[ID_WIDTH + 32];
    int size = ID_WIDTH;
    while (size > 0 && id[size - 1] == ' ')
        size--;
    memcpy(message, id, size);
    size += snprintf(message + size, 32, " %lld\n", fence);
    /* One that is gone, or whose pipe is full of messages, looks again by itself. */
    if (write(fd, message, size) < 0)
        errno = 0;
}

/* Hand over to the first in line; 0 if that is less simple, 2 if it is in another process, else 1. */
static int
hand_over(const Names *names, Line *line, const char *id, const char *token, PyObject *others, PyObject *wakeups)
{
    Slot slot, head;
    if (line->size != line->head + SLOT || !read_pending(line))
        return 0;
    Py_ssize_t first = find_first(line, -1);
    if (first < 0)
        return 0;
    Py_ssize_t second = find_first(line, first);
    const char *waits = line->pending + first;
    if (memcmp(waits + ID_AT, id, ID_WIDTH) == 0 || !waits_alive(line, first, &slot, token, others))
        return 0;
    /* The plan clears a dead one away that comes to the head of the line. */
    if (second >= 0 && !waits_alive(line, second, &head, token, others))
        return 0;
    int mine = strcmp(slot.token, token) == 0;
    int pipe = pipe_of(names, &slot, mine, others, wakeups);
    if (pipe < 0)
        return 0;
    long long fence = new_fence(number_at(line->data + line->head));
    if (fence > MOST_NUMBER)
        return 0;
    char text[SLOT + 1];
    snprintf(text, sizeof text, "using   number=%016lld", fence);
    memcpy(text + NUMBER_END, waits + NUMBER_END, SLOT - NUMBER_END);
    if (pwrite(line->fd, text, SLOT, line->head) != SLOT)
        return 0;
    if (!mine)
        ring(pipe, waits + ID_AT, fence);
    /* If one of these fails, whoever comes next finds a place that is taken twice by one claim, and puts it right. */
    int tidied = pwrite(line->pending_fd, "done    ", 8, first) == 8;
    if (second < 0)
        tidied = pwrite(line->fd, "0", 1, WAITING_AT) == 1 && tidied;
    unguard(line);
    if (mine)
        ring(pipe, waits + ID_AT, fence);
    return mine ? 1 : 2;
}

static PyObject *
leave(PyObject *module, PyObject *args)
{
    PyObject *object, *id, *others, *wakeups;
    const char *token;
    int capacity;
    char padded[ID_WIDTH];
    Line line;
    if (!PyArg_ParseTuple(args, "OOisO!O!", &object, &id, &capacity, &token, &PyDict_Type, &others, &PyDict_Type,
                          &wakeups))
        return NULL;
    int done = 0;
    const Names *names = PyModule_GetState(module);
    if (pad(id, padded) && guard(names, object, &line)) {
        const char *held = line.data + line.head;
        if (line.size >= line.head + SLOT && memcmp(held, "using ", 6) == 0 &&
            memcmp(held + ID_AT, padded, ID_WIDTH) == 0) {
            if (line.data[WAITING_AT] == '0' && line.size <= line.head + MOST_IDLE * SLOT)
                done = pwrite(line.fd, "done    ", 8, line.head) == 8;
            else if (line.data[WAITING_AT] != '0' && capacity == 1)
                done = hand_over(names, &line, padded, token, others, wakeups);
        }
        unguard(&line);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLong(done);
}

static PyMethodDef methods[] = {
    {"enter", enter, METH_VARARGS,
     "enter($module, line, id, capacity, ttl, tail, token, others, /)\n--\n\n"
     "Take a lock that nobody holds or waits for; return its fence, 0 (not done), -1 (taken), -2 (others wait)."},
    {"join", join, METH_VARARGS,
     "join($module, line, id, ttl, tail, pipe, token, others, /)\n--\n\n"
     "Stand in line; return whose death matters and how long to wait, or None."},
    {"leave", leave, METH_VARARGS,
     "leave($module, line, id, capacity, token, others, wakeups, /)\n--\n\n"
     "Leave a line; return 0 (not done), 1, or 2 (told another process)."},
    {NULL, NULL, 0, NULL},
};

static int
start(PyObject *module)
{
    Names *names = PyModule_GetState(module);
    names->fd = PyUnicode_InternFromString("fd");
    names->pending_fd = PyUnicode_InternFromString("pending_fd");
    names->heads = PyUnicode_InternFromString("heads");
    names->trusted = PyUnicode_InternFromString("trusted");
    names->retired = PyUnicode_InternFromString("retired");
    names->places = PyUnicode_InternFromString("places");
    if (!names->fd || !names->pending_fd || !names->heads || !names->trusted || !names->retired || !names->places)
        return -1;
    PyObject *layout = Py_BuildValue("iiiiiiiiiii", SLOT, WAITING_AT, NUMBER_AT, NUMBER_END, UNTIL_AT, UNTIL_WIDTH,
                                     ID_AT, ID_WIDTH, TAIL_AT, SPINS, MOST_IDLE);
    int added = layout == NULL ? -1 : PyModule_AddObjectRef(module, "LAYOUT", layout);
    Py_XDECREF(layout);
    return added;
}

static void
end(void *module)
{
    Names *names = PyModule_GetState(module);
    if (names == NULL)
        return;
    Py_XDECREF(names->fd);
    Py_XDECREF(names->pending_fd);
    Py_XDECREF(names->heads);
    Py_XDECREF(names->trusted);
    Py_XDECREF(names->retired);
    Py_XDECREF(names->places);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, start},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_quick", "The fast paths of fastpath.py, compiled.", sizeof(Names), methods, slots, NULL, NULL,
    end,
};

PyMODINIT_FUNC
PyInit__quick(void)
{
    return PyModuleDef_Init(&definition);
}
