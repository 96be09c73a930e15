/* One command out and one reply in over a plain socket, and what is heard on a channel, without an interpreter between the system calls.
 *
 * A server on the same machine or near answers sooner than a sleeping thread is woken, on virtual machines much sooner.
 * So who waits for a reply looks for it a little while before it sleeps, gives the processor to whoever else wants it
 * between two looks, and does not look where that was in vain: with a server that is far away, or on one processor.
 */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>

#define MOST_REPLY 4096
#define MOST_MISSES 8 /* looked in vain so often in a row: stop looking */
#define PAUSE 200     /* commands until the next tries */
#define PARTS 4
#define LONGEST_WORD 512 /* bytes */
#define JUNK 32 /* datagrams that are no words are dropped at a time */

/* How long a thread looks, and the thread of an event loop, in which others wait meanwhile. */
static struct looking {
    const double seconds;
    _Atomic int misses;
} of_threads = {250e-6, 0}, of_loops = {150e-6, 0};

static int processors;

static double
monotonic_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Look for a reply a little while; what `recv` returned, or -1 with EAGAIN. */
static ssize_t
look(int fd, char *reply, struct looking *looking)
{
    errno = EAGAIN;
    if (processors < 2)
        return -1;
    if (looking->misses >= MOST_MISSES) {
        if (++looking->misses < MOST_MISSES + PAUSE)
            return -1;
        looking->misses = 0;
    }
    double end = monotonic_now() + looking->seconds;
    do {
        ssize_t got = recv(fd, reply, MOST_REPLY, MSG_DONTWAIT);
        if (got >= 0 || errno != EAGAIN) {
            looking->misses = 0;
            return got;
        }
        sched_yield();
    } while (monotonic_now() < end);
    looking->misses++;
    errno = EAGAIN;
    return -1;
}

/* Send what is left of the parts; -1 with errno if that is not all. */
static int
send_rest(int fd, struct msghdr *command)
{
    while (command->msg_iovlen > 0) {
        ssize_t sent = sendmsg(fd, command, MSG_NOSIGNAL);
        if (sent < 0)
            return -1;
        while (command->msg_iovlen > 0 && (size_t)sent >= command->msg_iov->iov_len) {
            sent -= (ssize_t)command->msg_iov->iov_len;
            command->msg_iov++;
            command->msg_iovlen--;
        }
        if (command->msg_iovlen > 0) {
            command->msg_iov->iov_base = (char *)command->msg_iov->iov_base + sent;
            command->msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

/* Step over a line that is `mark` and a number; 0 if it is not there. */
static int
number(const char **at, const char *end, char mark, long long *value)
{
    const char *digit = *at, *first;
    if (digit >= end || *digit++ != mark)
        return 0;
    int negative = digit < end && *digit == '-';
    digit += negative;
    *value = 0;
    for (first = digit; digit < end && *digit >= '0' && *digit <= '9' && digit - first < 18; digit++)
        *value = *value * 10 + (*digit - '0');
    if (digit == first || end - digit < 2 || digit[0] != '\r' || digit[1] != '\n')
        return 0;
    *at = digit + 2;
    if (negative)
        *value = -*value;
    return 1;
}

/* Step over a line "$size" and so many bytes, which are returned; NULL if they are not there. */
static const char *
word(const char **at, const char *end, long long *size)
{
    const char *text = *at;
    if (!number(&text, end, '$', size) || *size < 0 || end - text < *size + 2 || text[*size] != '\r')
        return NULL;
    *at = text + *size + 2;
    return text;
}

/* Return a list of so many numbers and words, the last of which must end the reply; NULL, perhaps without an error. */
static PyObject *
list_in(const char *at, const char *end, long long count)
{
    long long value;
    PyObject *list = PyList_New(0);
    for (; list != NULL && count > 0; count--) {
        PyObject *one = NULL;
        const char *text;
        if (number(&at, end, ':', &value))
            one = PyLong_FromLongLong(value);
        else if ((text = word(&at, end, &value)) != NULL)
            one = PyBytes_FromStringAndSize(text, (Py_ssize_t)value);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    if (list != NULL && at != end)
        Py_CLEAR(list);
    return list;
}

/* Return the number that a reply is, or the list of numbers and words; the reply itself if it is another. */
static PyObject *
reply_in(const char *reply, ssize_t size)
{
    const char *at = reply, *end = reply + size;
    long long value;
    if (number(&at, end, ':', &value) && at == end)
        return PyLong_FromLongLong(value);
    at = reply;
    if (number(&at, end, '*', &value) && value > 0) {
        PyObject *list = list_in(at, end, value);
        if (list != NULL || PyErr_Occurred())
            return list;
    }
    return PyBytes_FromStringAndSize(reply, size);
}

/* Send, and look for the reply; if it does not come at once, wait for it (threads) or return None (loops). */
static PyObject *
talk(PyObject *args, struct looking *looking, int wait)
{
    int fd;
    PyObject *start, *id;
    char *begins, size[32], reply[MOST_REPLY];
    Py_ssize_t begin_size, id_size;
    if (!PyArg_ParseTuple(args, "iSU", &fd, &start, &id))
        return NULL;
    const char *text = PyUnicode_AsUTF8AndSize(id, &id_size);
    if (text == NULL || PyBytes_AsStringAndSize(start, &begins, &begin_size) < 0)
        return NULL;
    int size_size = PyOS_snprintf(size, sizeof size, "$%zd\r\n", id_size);
    struct iovec parts[PARTS] = {{begins, (size_t)begin_size},
                                 {size, (size_t)size_size},
                                 {(void *)text, (size_t)id_size},
                                 {"\r\n", 2}};
    struct msghdr command = {.msg_iov = parts, .msg_iovlen = PARTS};
    for (;;) {
        ssize_t got;
        int error, sent;
        Py_BEGIN_ALLOW_THREADS
        got = sent = send_rest(fd, &command);
        if (sent == 0) {
            got = look(fd, reply, looking);
            if (got < 0 && errno == EAGAIN && wait)
                got = recv(fd, reply, MOST_REPLY, 0);
        }
        error = errno;
        Py_END_ALLOW_THREADS
        if (got > 0 || (got == 0 && wait))
            return reply_in(reply, got);
        /* The end of the connection, and errors of it, are for the loop: it finds them too. */
        if (sent == 0 && !wait)
            return Py_NewRef(Py_None);
        errno = error;
        if (error != EINTR)
            return PyErr_SetFromErrno(PyExc_OSError);
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
}

static PyObject *
exchange(PyObject *module, PyObject *args)
{
    return talk(args, &of_threads, 1);
}

static PyObject *
post(PyObject *module, PyObject *args)
{
    return talk(args, &of_loops, 0);
}

/* Read a fence that reaches up to the end; 0 if it is none. */
static int
fence_in(const char *digit, const char *end, long long *fence)
{
    *fence = 0;
    if (digit == end || end - digit > 18)
        return 0;
    for (; digit < end; digit++) {
        if (*digit < '0' || *digit > '9')
            return 0;
        *fence = *fence * 10 + (*digit - '0');
    }
    return 1;
}

/* Read one message of a channel, "id fence", and add it to the news; 0 if there is something else. */
static int
message(const char **at, const char *end, PyObject *news)
{
    static const char kind[] = "*3\r\n$7\r\nmessage\r\n";
    long long size, fence;
    if (end - *at < (ssize_t)sizeof kind || memcmp(*at, kind, sizeof kind - 1))
        return 0;
    *at += sizeof kind - 1;
    const char *text = word(at, end, &size) == NULL ? NULL : word(at, end, &size);
    const char *space = text == NULL ? NULL : memchr(text, ' ', (size_t)size);
    if (space == NULL || space == text || !fence_in(space + 1, text + size, &fence))
        return 0;
    PyObject *one = Py_BuildValue("s#L", text, (Py_ssize_t)(space - text), fence);
    int done = one != NULL && PyList_Append(news, one) == 0;
    Py_XDECREF(one);
    return done;
}

/* Return the messages in `data`, each an id and a fence; the bytes, if they are others. */
static PyObject *
news_in(const char *data, ssize_t size)
{
    PyObject *news = PyList_New(0);
    const char *at = data, *end = data + size;
    int sound = size > 0;
    while (news != NULL && sound && at < end)
        sound = message(&at, end, news);
    if (news == NULL || sound)
        return news;
    Py_DECREF(news);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return NULL;
    PyErr_Clear();
    return PyBytes_FromStringAndSize(data, size);
}

/* Step over a part of a word, up to the next space or the end; its size. */
static Py_ssize_t
part(const char **at, const char *end)
{
    const char *begin = *at;
    while (*at < end && **at > ' ' && **at < 0x7f)
        ++*at;
    return *at - begin;
}

/* Return a word: (id, fence), or (id of the one before, (id, fence, address)); NULL without an error if it is none. */
static PyObject *
word_in(const char *text, const char *end, const char *address, Py_ssize_t address_size)
{
    const char *parts[3];
    Py_ssize_t sizes[3], count = 0;
    long long fence;
    for (const char *at = text; count < 3; at++) {
        parts[count] = at;
        sizes[count] = part(&at, end);
        if (sizes[count++] == 0)
            return NULL;
        if (at == end)
            break;
        if (*at != ' ' || count == 3)
            return NULL;
    }
    if (count < 2 || !fence_in(parts[count - 1], end, &fence))
        return NULL;
    if (count == 2)
        return Py_BuildValue("s#L", parts[0], sizes[0], fence);
    return Py_BuildValue("s#(s#Ly#)", parts[0], sizes[0], parts[1], sizes[1], fence, address, address_size);
}

/* Take one datagram of a user; its size, -1 if there is none, 0 if it is another's. */
static ssize_t
datagram(int fd, uid_t user, char *data, struct sockaddr_un *from, Py_ssize_t *from_size)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(struct ucred))];
    } about;
    struct iovec all = {data, LONGEST_WORD};
    struct msghdr message = {.msg_name = from, .msg_namelen = sizeof *from, .msg_iov = &all, .msg_iovlen = 1,
                             .msg_control = &about, .msg_controllen = sizeof about};
    ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT);
    if (size < 0)
        return -1;
    struct cmsghdr *sender = CMSG_FIRSTHDR(&message);
    if (sender == NULL || sender->cmsg_level != SOL_SOCKET || sender->cmsg_type != SCM_CREDENTIALS)
        return 0;
    struct ucred credentials;
    memcpy(&credentials, CMSG_DATA(sender), sizeof credentials);
    *from_size = (Py_ssize_t)message.msg_namelen - (Py_ssize_t)offsetof(struct sockaddr_un, sun_path);
    return credentials.uid == user && *from_size > 0 ? size : 0;
}

/* Return the next word of a user; NULL, perhaps without an error, if there is none. */
static PyObject *
next_word(int fd, uid_t user)
{
    char data[LONGEST_WORD];
    struct sockaddr_un from;
    Py_ssize_t from_size = 0;
    ssize_t size;
    for (int junk = 0; junk < JUNK && (size = datagram(fd, user, data, &from, &from_size)) >= 0; junk++) {
        PyObject *one = word_in(data, data + size, from.sun_path, from_size);
        if (one != NULL || PyErr_Occurred())
            return one;
    }
    return NULL;
}

static PyObject *
word_of(PyObject *module, PyObject *args)
{
    int fd;
    unsigned int user;
    if (!PyArg_ParseTuple(args, "iI", &fd, &user))
        return NULL;
    PyObject *one = next_word(fd, user);
    return one != NULL || PyErr_Occurred() ? one : Py_NewRef(Py_None);
}

static PyObject *
hear(PyObject *module, PyObject *args)
{
    struct pollfd polled[3] = {{.events = POLLIN}, {.events = POLLIN}, {.events = POLLIN}};
    char data[MOST_REPLY];
    unsigned int user;
    double seconds;
    if (!PyArg_ParseTuple(args, "iiiId", &polled[0].fd, &polled[1].fd, &polled[2].fd, &user, &seconds))
        return NULL;
    double end = monotonic_now() + seconds;
    for (;;) {
        double left = end - monotonic_now();
        struct timespec patience = {0, 0};
        if (left > 0) {
            patience.tv_sec = (time_t)left;
            patience.tv_nsec = (long)((left - (double)patience.tv_sec) * 1e9);
        }
        int ready, error;
        ssize_t size = 0;
        Py_BEGIN_ALLOW_THREADS
        ready = ppoll(polled, 3, &patience, NULL);
        if (ready > 0 && !polled[1].revents && polled[0].revents)
            size = recv(polled[0].fd, data, MOST_REPLY, MSG_DONTWAIT);
        error = errno;
        Py_END_ALLOW_THREADS
        if (ready == 0)
            return Py_NewRef(Py_None);
        if (ready > 0 && polled[1].revents)
            return Py_NewRef(Py_False);
        if (ready > 0 && !polled[0].revents) {
            PyObject *one = next_word(polled[2].fd, user);
            return one != NULL || PyErr_Occurred() ? one : Py_NewRef(Py_None);
        }
        if (ready > 0 && size >= 0)
            return news_in(data, size);
        errno = error;
        if (error != EINTR && error != EAGAIN)
            return PyErr_SetFromErrno(PyExc_OSError);
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
}

static PyMethodDef methods[] = {
    {"exchange", exchange, METH_VARARGS,
     "Send a command that ends with a claim's id; return the reply: a number, a list of numbers and words, or the bytes that came first."},
    {"post", post, METH_VARARGS, "As exchange, on a socket that does not block; None if the reply does not come at once."},
    {"hear", hear, METH_VARARGS,
     "Wait for messages; return each as an id and a fence, other bytes, a word from the third file, None (none came), or False (the second file)."},
    {"word", word_of, METH_VARARGS, "Take a word of a user: (id, fence), or (id of the one before, (id, fence, sender's address)); None if there is none."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_exchange", "One command out and one reply in.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__exchange(void)
{
    cpu_set_t mine;
    processors = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
    return PyModule_Create(&definition);
}
