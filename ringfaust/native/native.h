/* What the files of `_native` share: a buffer that grows, and the classes that they read and make.

   `layouts.h` is written by layouts.py: the index of each field, and what else Python defines.
   Fields are read by index, so the class and the size of each tuple are compared before: Python can
   make tuples of any length of any class. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "layouts.h"

/* --- the functions of the module, by their files ----------------------------------------------- */

PyObject *create(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *records_of(PyObject *, PyObject *);
PyObject *held_bytes(PyObject *, PyObject *);
PyObject *event_line(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *append_record(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *append_row(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *append_evicted(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *append_dispatched(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *encode_writes(PyObject *, PyObject *);

/* --- what is found in Python ------------------------------------------------------------------- */

typedef struct {
    const char *module, *name;
    Py_ssize_t fields;
    PyTypeObject *type;
} Class;

/* By the constants CLASS_… of layouts.h. */
extern Class classes[CLASS_COUNT];
extern PyObject *writers, *event_tail, *encode_table, *queue_texts;
extern int is_loaded;

/* Find the classes and functions, at the first use: by then Python has imported their modules. */
int load(void);
#define LOADED() (is_loaded || load() == 0)

#define TYPE(class) classes[class].type
#define OF(tuple, field) PyTuple_GET_ITEM(tuple, field)

static inline int is_a(PyObject *found, PyTypeObject *type) {
    if (Py_TYPE(found) == type) return 1;
    PyErr_Format(PyExc_TypeError, "expected %R, found %R", type, Py_TYPE(found));
    return 0;
}

/* Whether an object is of the class and has a value for each of its fields. */
static inline int is_whole(PyObject *found, int class) {
    if (!is_a(found, TYPE(class))) return 0;
    if (PyTuple_GET_SIZE(found) == classes[class].fields) return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd fields of %R, found %zd", classes[class].fields,
                 TYPE(class), PyTuple_GET_SIZE(found));
    return 0;
}

/* Whether a message is one, and has a payload. */
static inline int is_message(PyObject *found) {
    return is_whole(found, CLASS_MESSAGE) && is_whole(OF(found, MESSAGE_PAYLOAD), CLASS_PAYLOAD);
}

static inline int is_delivery(PyObject *found) {
    return is_whole(found, CLASS_DELIVERY) && is_message(OF(found, DELIVERY_MESSAGE));
}

/* A value of a named tuple's class, as a new reference; its fields are not set yet. */
static inline PyObject *new_tuple(PyTypeObject *type, Py_ssize_t fields) {
    PyObject *made = type->tp_alloc(type, fields);
#if PY_VERSION_HEX >= 0x030E0000
    if (made) ((PyTupleObject *)made)->ob_hash = -1; /* not known yet: 0 would be its hash */
#endif
    return made;
}

static inline int has_arguments(Py_ssize_t found, Py_ssize_t wanted) {
    if (found == wanted) return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, found %zd", wanted, found);
    return 0;
}

/* --- a buffer that grows ---------------------------------------------------------------------- */

enum { ROOM = 4096 };

typedef struct {
    char *data;
    Py_ssize_t size, room;
    char own[ROOM]; /* enough for most records */
    int failed;     /* a Python exception is set; whatever follows is ignored */
} Buffer;

static inline void begin(Buffer *b) {
    b->data = b->own;
    b->size = 0;
    b->room = ROOM;
    b->failed = 0;
}

static inline void end(Buffer *b) {
    if (b->data != b->own) PyMem_Free(b->data);
}

/* Room for `more` bytes at the end, or NULL. */
static inline char *reserve(Buffer *b, Py_ssize_t more) {
    if (b->failed) return NULL;
    if (more > b->room - b->size) {
        Py_ssize_t room = 2 * (b->size + more);
        char *data = PyMem_Malloc(room);
        if (!data) {
            PyErr_NoMemory();
            b->failed = 1;
            return NULL;
        }
        memcpy(data, b->data, b->size);
        end(b);
        b->data = data;
        b->room = room;
    }
    return b->data + b->size;
}

static inline void put(Buffer *b, const char *data, Py_ssize_t size) {
    char *to = reserve(b, size);
    if (!to) return;
    memcpy(to, data, size);
    b->size += size;
}

#define PUT(b, literal) put(b, literal, sizeof(literal) - 1)

/* --- values ----------------------------------------------------------------------------------- */

static inline long long whole(Buffer *b, PyObject *number) {
    if (!PyLong_Check(number)) {
        if (!b->failed) PyErr_Format(PyExc_TypeError, "not a whole number: %R", number);
        b->failed = 1;
        return 0;
    }
    int overflow; /* unlike PyLong_AsLongLong, this reads two digits without a copy */
    long long found = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow) {
        if (!b->failed) PyErr_Format(PyExc_OverflowError, "more than 64 bits: %R", number);
        b->failed = 1;
    }
    return found;
}

/* How long after `from` it was `at`. */
static inline long long between(Buffer *b, PyObject *from, PyObject *at) {
    long long found;
    if (__builtin_sub_overflow(whole(b, at), whole(b, from), &found) && !b->failed) {
        PyErr_Format(PyExc_OverflowError, "more than 64 bits: %R - %R", at, from);
        b->failed = 1;
    }
    return found;
}

static inline int is_true(Buffer *b, PyObject *found) {
    int truth = b->failed ? 0 : PyObject_IsTrue(found);
    if (truth < 0) b->failed = 1;
    return truth > 0;
}

static inline const char *utf8(Buffer *b, PyObject *text, Py_ssize_t *size) {
    const char *raw = b->failed ? NULL : PyUnicode_AsUTF8AndSize(text, size);
    if (!raw) b->failed = 1;
    return raw;
}

/* The digits of a number, written backwards; returns where they begin. */
static inline char *digits(long long number, char *behind) {
    unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    char *at = behind;
    do *--at = '0' + rest % 10;
    while (rest /= 10);
    if (number < 0) *--at = '-';
    return at;
}
